/* See plan.h. */
#include "src/hosts/plan.h"

#include <math.h>
#include <string.h>

#include "src/base/alloc.h"

/* Indices of the integers of the message. The numbers of the rank's processors follow them. */
enum {
    AT_ROUND,
    AT_FIRST_RANK,
    AT_WORLD_SIZE,
    AT_GROUP_RANK,
    AT_N_HOSTS,
    AT_N_LOCAL,
    AT_MASTER_PORT,
    AT_MAX_RESTARTS,
    AT_RESTARTS,
    AT_OMP_THREADS,
    AT_IS_SUBCOMMAND,
    AT_STREAMS,     /* redirects + 4 * tees + 16 if the rank's output reaches the console */
    AT_SHUTDOWN_MS, /* -1: the default */
    AT_LOCAL_RANK,
    AT_IS_BOUND,
    N_INTS
};

/* Indices of the texts of the message. The words of the command follow them. */
enum {
    AT_ROLE,
    AT_MASTER_ADDR,
    AT_RUN_ID,
    AT_LINE_PREFIX,
    AT_LOG_DIR, /* the text is empty if no files are written */
    AT_PROGRAM, /* the text is empty if the ranks run a subcommand of fsdp */
    N_TEXTS
};

static int count_cpus(const fsdp_launch *launch, int local_rank, int32_t *cpus)
{
    int n = 0;
    for (int cpu = 0; launch->cpus && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET((size_t)cpu, &launch->cpus[local_rank]))
            cpus[n++] = cpu;
    return n;
}

static void encode_with_words(const fsdp_launch *launch, const int32_t *ints, int n_ints,
                              const char **texts, fsdp_str *out)
{
    int n_words = 0;
    while (launch->command[n_words])
        n_words++;
    const char **all = fsdp_calloc((size_t)(N_TEXTS + n_words), sizeof *all);
    if (!all) {
        out->failed = true;
        return;
    }
    memcpy(all, texts, N_TEXTS * sizeof *all);
    for (int i = 0; i < n_words; i++)
        all[N_TEXTS + i] = launch->command[i];
    const fsdp_hosts_message message = {.kind = FSDP_HOSTS_PLAN,
                                        .n_ints = n_ints,
                                        .ints = ints,
                                        .n_texts = N_TEXTS + n_words,
                                        .texts = all};
    fsdp_hosts_encode(&message, out);
    fsdp_free(all);
}

void fsdp_plan_encode(const fsdp_launch *launch, const fsdp_hosts_shape *shape, int local_rank,
                      fsdp_str *out)
{
    const double shutdown_s = launch->shutdown_timeout_s;
    int32_t ints[N_INTS + CPU_SETSIZE] = {
        [AT_ROUND] = shape->round,
        [AT_FIRST_RANK] = shape->first_rank,
        [AT_WORLD_SIZE] = shape->world_size,
        [AT_GROUP_RANK] = shape->group_rank,
        [AT_N_HOSTS] = shape->n_hosts,
        [AT_N_LOCAL] = shape->n_local,
        [AT_MASTER_PORT] = shape->master_port,
        [AT_MAX_RESTARTS] = launch->max_restarts,
        [AT_RESTARTS] = shape->restarts,
        [AT_OMP_THREADS] = launch->omp_num_threads,
        [AT_IS_SUBCOMMAND] = launch->is_subcommand,
        [AT_STREAMS] = launch->redirects[local_rank] + 4 * launch->tees[local_rank] +
                       16 * launch->on_console[local_rank],
        [AT_SHUTDOWN_MS] = isnan(shutdown_s) ? -1 : (int32_t)(shutdown_s * 1e3),
        [AT_LOCAL_RANK] = local_rank,
        [AT_IS_BOUND] = launch->cpus != NULL,
    };
    const char *texts[N_TEXTS] = {
        [AT_ROLE] = launch->role,
        [AT_MASTER_ADDR] = launch->master_addr,
        [AT_RUN_ID] = launch->run_id,
        [AT_LINE_PREFIX] = launch->line_prefix,
        [AT_LOG_DIR] = launch->log_dir ? launch->log_dir : "",
        [AT_PROGRAM] = launch->is_subcommand ? "" : launch->program,
    };
    encode_with_words(launch, ints, N_INTS + count_cpus(launch, local_rank, ints + N_INTS), texts,
                      out);
}

static fsdp_status check_numbers(const int32_t *at)
{
    const bool placed = at[AT_N_HOSTS] >= 1 && at[AT_GROUP_RANK] >= 0 &&
                        at[AT_GROUP_RANK] < at[AT_N_HOSTS] && at[AT_LOCAL_RANK] >= 0 &&
                        at[AT_LOCAL_RANK] < at[AT_N_LOCAL] && at[AT_FIRST_RANK] >= 0 &&
                        at[AT_WORLD_SIZE] >= 1 && at[AT_N_LOCAL] <= at[AT_WORLD_SIZE] &&
                        at[AT_FIRST_RANK] <= at[AT_WORLD_SIZE] - at[AT_N_LOCAL];
    if (!placed || at[AT_STREAMS] < 0 || at[AT_STREAMS] > 31 || at[AT_ROUND] < 0 ||
        at[AT_RESTARTS] < 0)
        return fsdp_error(FSDP_ERR_FORMAT, "launch-rank: the plan of this rank is damaged");
    return FSDP_OK;
}

static void read_numbers(const fsdp_hosts_message *m, fsdp_rank_plan *plan)
{
    const int32_t *at = m->ints;
    plan->round = at[AT_ROUND];
    plan->share = (fsdp_launch_share){.first_rank = at[AT_FIRST_RANK] + at[AT_LOCAL_RANK],
                                      .world_size = at[AT_WORLD_SIZE],
                                      .first_local_rank = at[AT_LOCAL_RANK],
                                      .local_world_size = at[AT_N_LOCAL],
                                      .group_rank = at[AT_GROUP_RANK],
                                      .group_world_size = at[AT_N_HOSTS],
                                      .restarts = at[AT_RESTARTS],
                                      .parent_fd = -1};
    plan->redirects = at[AT_STREAMS] & 3;
    plan->tees = at[AT_STREAMS] >> 2 & 3;
    plan->on_console = at[AT_STREAMS] & 16;
    CPU_ZERO(&plan->cpus);
    for (int i = N_INTS; i < m->n_ints; i++)
        if (at[i] >= 0 && at[i] < CPU_SETSIZE)
            CPU_SET((size_t)at[i], &plan->cpus);
}

/* Set *copy to a copy of the text, which the launch owns, or to NULL if the text is "". */
static fsdp_status own_text(const char *text, char **copy)
{
    *copy = *text ? fsdp_strdup(text) : NULL;
    return *text && !*copy ? FSDP_ERR_NOMEM : FSDP_OK;
}

static fsdp_status fill_launch(fsdp_rank_plan *plan)
{
    const fsdp_hosts_message *m = &plan->message;
    const size_t n_words = (size_t)(m->n_texts - N_TEXTS);
    plan->command = fsdp_calloc(n_words + 1, sizeof *plan->command);
    if (!plan->command)
        return FSDP_ERR_NOMEM;
    /* exec takes words that are not const, but does not change them. */
    memcpy(plan->command, m->texts + N_TEXTS, n_words * sizeof *plan->command);
    const int32_t shutdown_ms = m->ints[AT_SHUTDOWN_MS];
    plan->launch =
        (fsdp_launch){.n_ranks = 1,
                      .command = plan->command,
                      .is_subcommand = m->ints[AT_IS_SUBCOMMAND] != 0,
                      .role = m->texts[AT_ROLE],
                      .master_addr = m->texts[AT_MASTER_ADDR],
                      .run_id = m->texts[AT_RUN_ID],
                      .line_prefix = m->texts[AT_LINE_PREFIX],
                      .master_port = m->ints[AT_MASTER_PORT],
                      .max_restarts = m->ints[AT_MAX_RESTARTS],
                      .omp_num_threads = m->ints[AT_OMP_THREADS],
                      .shutdown_timeout_s = shutdown_ms < 0 ? (double)NAN : shutdown_ms * 1e-3,
                      .redirects = &plan->redirects,
                      .tees = &plan->tees,
                      .on_console = &plan->on_console,
                      .cpus = m->ints[AT_IS_BOUND] ? &plan->cpus : NULL,
                      .share = &plan->share};
    FSDP_TRY(own_text(m->texts[AT_LOG_DIR], &plan->launch.log_dir));
    return own_text(m->texts[AT_PROGRAM], &plan->launch.program);
}

fsdp_status fsdp_plan_decode(const void *bytes, size_t size, fsdp_rank_plan *plan)
{
    *plan = (fsdp_rank_plan){0};
    FSDP_TRY(fsdp_hosts_decode(bytes, size, &plan->message));
    fsdp_status status = plan->message.kind == FSDP_HOSTS_PLAN
                             ? check_numbers(plan->message.ints)
                             : fsdp_error(FSDP_ERR_FORMAT, "launch-rank: this is not a plan");
    if (status == FSDP_OK) {
        read_numbers(&plan->message, plan);
        status = fill_launch(plan);
    }
    if (status != FSDP_OK)
        fsdp_plan_fini(plan);
    return status;
}

void fsdp_plan_fini(fsdp_rank_plan *plan)
{
    fsdp_free(plan->launch.log_dir);
    fsdp_free(plan->launch.program);
    fsdp_free(plan->command);
    fsdp_hosts_message_fini(&plan->message);
    *plan = (fsdp_rank_plan){0};
}
