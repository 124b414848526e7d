/* See rank_stage.h. */
#include "src/hosts/rank_stage.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/comm/control.h"
#include "src/hosts/local_socket.h"
#include "src/hosts/mpi.h"
#include "src/hosts/plan.h"
#include "src/launch/exit_code.h"

/* Let this process end with MPI's daemon, its parent. Its rank then ends, too. */
static fsdp_status end_with_parent(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() == 1)
        return fsdp_error(FSDP_ERR_COMM, "launch-rank: MPI's daemon has ended");
    return FSDP_OK;
}

/* Report to the launcher of this host how the rank ended. */
static fsdp_status send_result(int fd, const fsdp_attempt *attempt)
{
    const char *texts[] = {attempt->message};
    const int32_t ints[] = {attempt->exit_code, attempt->interrupted, attempt->pointless};
    const fsdp_hosts_message message = {.kind = FSDP_HOSTS_RESULT,
                                        .ints = ints,
                                        .n_ints = (int)FSDP_LENGTH(ints),
                                        .texts = texts,
                                        .n_texts = 1};
    return fsdp_local_socket_send(fd, &message);
}

/* In a job of several hosts, a rank ends without MPI_Finalize() (Note [Ending MPICH] in
 * src/comm/mpi/world.c). When Hydra sees a process of MPICH end in this way, it kills the other
 * processes of this host, which may not have sent their results yet. So report to Hydra that this
 * process is done, with the finalize command of PMI version 1, and wait for the answer. If the rank
 * has called MPI_Finalize() itself, Hydra has closed the socket already. */
static void finalize_mpich(void)
{
    static const char command[] = "cmd=finalize\n";
    char answer[256];
    const char *text = getenv("PMI_FD");
    struct pollfd p = {.fd = text ? atoi(text) : -1, .events = POLLIN};
    if (p.fd > STDERR_FILENO && write(p.fd, command, sizeof command - 1) > 0 &&
        poll(&p, 1, 2000) == 1)
        (void)!read(p.fd, answer, sizeof answer);
}

/* Run the rank. If no launcher of this host prints how the rank ended, print it here. */
static fsdp_status run_rank(const fsdp_rank_plan *plan, int *exit_code)
{
    fsdp_attempt attempt = {0};
    const int fd = plan->share.parent_fd;
    signal(SIGPIPE, SIG_IGN);
    fsdp_status status = fsdp_launch_attempt(&plan->launch, plan->round, &attempt);
    if (status != FSDP_OK) {
        attempt = (fsdp_attempt){.exit_code = FSDP_EXIT_FAILURE};
        snprintf(attempt.message, sizeof attempt.message, "rank %d: %s", plan->share.first_rank,
                 fsdp_last_error());
    }
    /* If the rank was asked to end, report success to MPI. After a failure, MPI would kill ranks
     * that are still saving a checkpoint. There is one exception: without a launcher on this host,
     * MPI's exit code is the only report of a checkpoint that could not be saved. In that case,
     * report the failure. */
    *exit_code = attempt.interrupted && (fd >= 0 || !attempt.failed_after_signal)
                     ? FSDP_EXIT_OK
                     : attempt.exit_code;
    if (!*exit_code)
        finalize_mpich();
    if (fd >= 0)
        return send_result(fd, &attempt);
    if (*exit_code) {
        fprintf(stderr, "fsdp launch: %s\n", attempt.message);
        fsdp_mpich_abort(*exit_code); /* if the rank failed before MPI_Init(), Hydra would otherwise
                                         wait for the other ranks */
    }
    return FSDP_OK;
}

static fsdp_status run_for_launcher(const fsdp_mpi_place *place, int fd, int *exit_code)
{
    const int32_t ints[] = {place->rank, place->world_size, place->local_rank,
                            place->local_world_size};
    const fsdp_hosts_message hello = {.kind = FSDP_HOSTS_RANK, .ints = ints, .n_ints = 4};
    char *bytes = NULL;
    size_t size = 0;
    fsdp_rank_plan plan;
    FSDP_TRY(fsdp_local_socket_send(fd, &hello));
    FSDP_TRY(fsdp_local_socket_receive_plan(fd, &bytes, &size));
    fsdp_status status = fsdp_plan_decode(bytes, size, &plan);
    fsdp_free(bytes);
    if (status != FSDP_OK)
        return status;
    plan.share.parent_fd = fd;
    status = run_rank(&plan, exit_code);
    fsdp_plan_fini(&plan);
    return status;
}

/* ---- plans in words ---- */

static int digit_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Read a plan in hexadecimal digits. The caller frees *bytes. */
static fsdp_status read_hex(const char *text, char **bytes, size_t *size)
{
    const size_t n = strlen(text) / 2;
    char *read = fsdp_calloc(n + 1, 1);
    if (!read)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const int high = digit_value(text[2 * i]), low = digit_value(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            fsdp_free(read);
            return fsdp_error(FSDP_ERR_FORMAT, "launch-rank: the plan is not hexadecimal");
        }
        read[i] = (char)(high << 4 | low);
    }
    *bytes = read;
    *size = n;
    return FSDP_OK;
}

/* Set share->group_rank and share->local_world_size. `counts` is the number of ranks of each host,
 * such as "2,2". */
static fsdp_status find_host(const char *counts, const fsdp_mpi_place *place,
                             fsdp_launch_share *share)
{
    int first = 0, index = 0;
    for (const char *at = counts; *at; at += *at == ',', index++) {
        char *end;
        const long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > FSDP_COMM_MAX_RANKS || (*end && *end != ','))
            break;
        if (place->rank < first + n) {
            share->group_rank = index;
            share->local_world_size = (int)n;
            if (place->rank - first == place->local_rank)
                return FSDP_OK;
            break;
        }
        first += (int)n;
        at = end;
    }
    return fsdp_error(FSDP_ERR_INVALID,
                      "MPI started rank %d as local rank %d, but the hosts have %s ranks: do "
                      "variables of MPI in the environment change the places of ranks?",
                      place->rank, place->local_rank, counts);
}

/* Add the name of this host to the path of the log folder, because several hosts may share its file
 * system. */
static fsdp_status add_host_to_log_dir(fsdp_launch *launch)
{
    char host[256] = "";
    if (!launch->log_dir)
        return FSDP_OK;
    gethostname(host, sizeof host - 1);
    char *path = fsdp_strdup_printf("%s/%s", launch->log_dir, host);
    if (!path)
        return fsdp_error_nomem();
    fsdp_free(launch->log_dir);
    launch->log_dir = path;
    return FSDP_OK;
}

/* Choose the processors of the rank among the processors of this host. `kind` is an fsdp_bind. */
static fsdp_status bind_rank(const char *kind, fsdp_rank_plan *plan)
{
    fsdp_launch all = {.n_ranks = plan->share.local_world_size};
    FSDP_TRY(fsdp_launch_bind(&all, (fsdp_bind)atoi(kind)));
    if (all.cpus) {
        plan->cpus = all.cpus[plan->share.first_local_rank];
        plan->launch.cpus = &plan->cpus;
    }
    fsdp_free(all.cpus);
    return FSDP_OK;
}

static fsdp_status run_by_words(const fsdp_mpi_place *place, int argc, char **argv, int *exit_code)
{
    char *bytes = NULL;
    size_t size = 0;
    fsdp_rank_plan plan;
    if (argc < 3 || place->local_rank >= argc - 3)
        return fsdp_error(FSDP_ERR_INVALID, "launch-rank: no plan for local rank %d",
                          place->local_rank);
    FSDP_TRY(read_hex(argv[3 + place->local_rank], &bytes, &size));
    fsdp_status status = fsdp_plan_decode(bytes, size, &plan);
    fsdp_free(bytes);
    if (status != FSDP_OK)
        return status;
    plan.share.first_rank = place->rank;
    plan.share.world_size = place->world_size;
    status = find_host(argv[2], place, &plan.share);
    if (status == FSDP_OK)
        status = bind_rank(argv[1], &plan);
    if (status == FSDP_OK)
        status = add_host_to_log_dir(&plan.launch);
    if (status == FSDP_OK)
        status = run_rank(&plan, exit_code);
    fsdp_plan_fini(&plan);
    return status;
}

fsdp_status fsdp_rank_stage(int argc, char **argv, int *exit_code)
{
    fsdp_mpi_place place;
    int fd;
    FSDP_TRY(fsdp_mpi_place_read(&place));
    FSDP_TRY(end_with_parent());
    if (argc > 1)
        return run_by_words(&place, argc, argv, exit_code);
    FSDP_TRY(fsdp_local_socket_connect(&fd));
    fsdp_status status = run_for_launcher(&place, fd, exit_code);
    close(fd);
    return status;
}

/* ---- the launch agent ---- */

/* Send the host and the command line of the daemon, and wait for its exit code. */
static fsdp_status ask_launcher(int fd, const char *host, char **words, size_t n, int *exit_code)
{
    unsigned char code;
    const char **texts = fsdp_calloc(n + 1, sizeof *texts);
    if (!texts)
        return FSDP_ERR_NOMEM;
    texts[0] = host;
    for (size_t i = 0; i < n; i++)
        texts[1 + i] = words[i];
    const fsdp_hosts_message message = {
        .kind = FSDP_HOSTS_AGENT, .texts = texts, .n_texts = (int)n + 1};
    fsdp_status status = fsdp_local_socket_send(fd, &message);
    fsdp_free(texts);
    FSDP_TRY(status);
    ssize_t got;
    do {
        got = recv(fd, &code, 1, 0);
    } while (got < 0 && errno == EINTR);
    if (got != 1)
        return fsdp_error(FSDP_ERR_COMM, "host %s: the job has ended", host);
    *exit_code = code;
    return FSDP_OK;
}

fsdp_status fsdp_launch_agent(int argc, char **argv, int *exit_code)
{
    char **words;
    size_t n;
    int fd;
    if (argc < 3)
        return fsdp_error(FSDP_ERR_INVALID, "launch agent: a host and a command are needed");
    /* fsdp_mpi_split() only reads the words. */
    FSDP_TRY(fsdp_mpi_split((const char *const *)(void *)(argv + 2), (size_t)argc - 2, &words, &n));
    fsdp_status status = fsdp_local_socket_connect(&fd);
    if (status == FSDP_OK) {
        status = ask_launcher(fd, argv[1], words, n, exit_code);
        close(fd);
    }
    fsdp_names_free(words, n);
    return status;
}
