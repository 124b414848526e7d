/* See job.h. */
#include "src/hosts/job.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"

/* Options that may differ between the hosts of a job, because they are about one host. */
static const char *const own_options[] = {
    "nproc-per-node",      "node-rank",    "local-addr",      "log-dir",
    "redirects",           "tee",          "gpu-ids",         "local-ranks-filter",
    "job-secret-file",     "rdzv-conf",    "master-addr",     "master-port",
    "rdzv-endpoint",       "bind",         "omp-num-threads", "log-line-prefix-template",
    "enable-cpu-affinity", "num-processes"};

static bool is_own(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(own_options); i++)
        if (strcmp(own_options[i], name) == 0)
            return true;
    return false;
}

/* Add an option, or a word of the command, that must be equal on all hosts. Messages contain
 * `shown`. The launchers compare the digests of `digested`. The job owns `shown`, also after an
 * error. */
static fsdp_status add_word(fsdp_hosts_job *job, char *shown, const char *digested)
{
    if (!shown)
        return fsdp_error_nomem();
    fsdp_shared_word *word = &job->words[job->n_words++];
    word->shown = shown;
    fsdp_job_secret_digest(&job->secret, digested, word->digest);
    return FSDP_OK;
}

/* Fill job->words with the options that must be equal on all hosts, and with the words of the
 * command. */
static fsdp_status list_words(fsdp_hosts_job *job, const fsdp_options *options)
{
    const fsdp_options_spec *spec = fsdp_launch_options();
    size_t n_command = 0;
    while (job->launch->command[n_command])
        n_command++;
    job->words = fsdp_calloc(spec->count + n_command, sizeof *job->words);
    if (!job->words)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < spec->count; i++) {
        const char *name = spec->table[i].name;
        if (is_own(name))
            continue;
        const char *text = fsdp_options_text(options, name);
        if (!text) /* the option was not given: use its default */
            text = spec->table[i].value;
        char *shown = fsdp_strdup_printf("--%s %s", name, text ? text : "(not given)");
        FSDP_TRY(add_word(job, shown, shown ? shown : ""));
    }
    for (size_t i = 0; i < n_command; i++) {
        const char *word = job->launch->command[i];
        FSDP_TRY(
            add_word(job, fsdp_strdup_printf("'%s', word %zu of the command", word, i + 1), word));
    }
    return FSDP_OK;
}

/* Decide where the launchers meet, and whether this launcher may be the first one. With --node-rank
 * and without --rdzv-endpoint, the launcher of host 0 is the first. Otherwise, any launcher on the
 * host of the endpoint may be the first. The first is then the launcher that begins to listen at
 * the endpoint before the others. */
static fsdp_status find_meeting(fsdp_hosts_job *job)
{
    const fsdp_launch_config *c = job->config;
    bool is_local;
    fsdp_status status =
        fsdp_endpoint_read(c->rdzv_endpoint ? c->rdzv_endpoint : c->master_addr,
                           c->rdzv_endpoint ? 29400 : c->master_port, &job->endpoint);
    if (status != FSDP_OK) {
        fsdp_error_context(status, c->rdzv_endpoint ? "--rdzv-endpoint" : "--master-addr");
        return status;
    }
    if (job->endpoint.port == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "port 0: several hosts meet at a port that all of them know");
    if (!c->rdzv_endpoint && c->has_node_rank) {
        job->may_be_first = c->node_rank == 0;
        job->may_join = !job->may_be_first;
        return FSDP_OK;
    }
    FSDP_TRY(fsdp_endpoint_is_local(&job->endpoint, &is_local));
    job->may_be_first = is_local;
    job->may_join = true;
    return FSDP_OK;
}

static fsdp_status find_secret(fsdp_hosts_job *job)
{
    bool found;
    FSDP_TRY(fsdp_job_secret_read(job->config->job_secret_file, &job->secret, &found));
    if (found)
        return FSDP_OK;
    if (!job->may_be_first)
        return fsdp_error(FSDP_ERR_INVALID,
                          "this host has no job secret. Start the first host (%s), and put the "
                          "word that it prints in front of this command: " FSDP_JOB_SECRET_ENV
                          "=... fsdp launch ...; or keep a secret in ~/.config/fsdp/job-secret on "
                          "all hosts: (umask 077; mkdir -p ~/.config/fsdp; openssl rand -hex 16 > "
                          "~/.config/fsdp/job-secret)",
                          job->endpoint.host);
    job->made_secret = true;
    return fsdp_job_secret_make(&job->secret, job->secret_text);
}

fsdp_status fsdp_hosts_job_init(fsdp_hosts_job *job, const fsdp_options *options)
{
    const fsdp_launch_config *c = job->config;
    if (gethostname(job->host, sizeof job->host - 1) != 0 || !*job->host)
        snprintf(job->host, sizeof job->host, "this host");
    FSDP_TRY(find_meeting(job));
    FSDP_TRY(find_secret(job));
    FSDP_TRY(fsdp_mpi_find((fsdp_mpi_kind)c->mpi, job->launch->program, &job->mpi));
    if (c->rdzv_endpoint)
        job->launch->master_addr = job->endpoint.host;
    return list_words(job, options);
}

void fsdp_hosts_job_fini(fsdp_hosts_job *job)
{
    for (size_t i = 0; i < job->n_words; i++)
        fsdp_free(job->words[i].shown);
    fsdp_free(job->words);
    fsdp_mpi_fini(&job->mpi);
    explicit_bzero(&job->secret, sizeof job->secret);
    explicit_bzero(job->secret_text, sizeof job->secret_text);
}

fsdp_status fsdp_hosts_run(fsdp_hosts_job *job, int *exit_code)
{
    int listener;
    bool in_use = false;
    if (job->may_be_first) {
        FSDP_TRY(fsdp_endpoint_listen(&job->endpoint, &listener, &in_use));
        if (!in_use)
            return fsdp_hosts_run_first(job, listener, exit_code);
    }
    if (!job->may_join)
        return fsdp_error(FSDP_ERR_IO,
                          "%s:%d: another process listens at this port; --master-port N takes "
                          "another one, on all hosts",
                          job->endpoint.host, job->endpoint.port);
    if (job->made_secret)
        return fsdp_error(
            FSDP_ERR_INVALID,
            "%s:%d: a launcher waits there already, and this one has no job secret; "
            "put the word that the other one printed in front of this command: " FSDP_JOB_SECRET_ENV
            "=... fsdp launch ...",
            job->endpoint.host, job->endpoint.port);
    return fsdp_hosts_run_other(job, exit_code);
}
