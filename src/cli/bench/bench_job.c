/* See bench.h. */
#include "src/cli/bench/bench.h"

#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/comm/task.h"

static fsdp_status prepare(int ranks, char **command, fsdp_launch *launch)
{
    size_t n = (size_t)ranks;
    *launch = (fsdp_launch){.n_ranks = ranks,
                            .command = command,
                            .is_subcommand = true,
                            .role = "default",
                            .line_prefix = "[${role_name}${local_rank}]:",
                            .run_id = "none",
                            .master_addr = "127.0.0.1",
                            .master_port = 29500,
                            .shutdown_timeout_s = 5.0};
    launch->redirects = fsdp_calloc(n, sizeof *launch->redirects);
    launch->tees = fsdp_calloc(n, sizeof *launch->tees);
    launch->on_console = fsdp_calloc(n, sizeof *launch->on_console);
    if (!launch->redirects || !launch->tees || !launch->on_console)
        return fsdp_error_nomem();
    for (size_t i = 0; i < n; i++)
        launch->on_console[i] = true;
    return fsdp_launch_bind(launch, FSDP_BIND_CORE);
}

fsdp_status fsdp_bench_job_run(int ranks, char **argv, const char *report, fsdp_attempt *attempt)
{
    fsdp_launch launch = {0};
    FSDP_TRY(fsdp_check_single_task());
    fsdp_status status = prepare(ranks, argv, &launch);
    if (status == FSDP_OK) {
        setenv(FSDP_BENCH_REPORT_ENV, report, 1);
        status = fsdp_launch_attempt(&launch, 0, attempt);
    }
    fsdp_free(launch.redirects);
    fsdp_free(launch.tees);
    fsdp_free(launch.on_console);
    fsdp_free(launch.cpus);
    return status;
}

fsdp_status fsdp_bench_job_report(const char **report)
{
    *report = NULL;
    if (!getenv(FSDP_RENDEZVOUS_ENV))
        return FSDP_OK;
    *report = getenv(FSDP_BENCH_REPORT_ENV);
    if (!*report)
        return fsdp_error(FSDP_ERR_INVALID, "it starts its ranks itself: give --ranks N without "
                                            "'fsdp launch' (collectives: or --transport job)");
    return FSDP_OK;
}
