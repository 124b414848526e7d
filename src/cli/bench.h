/* What the kinds of `fsdp bench` share: each starts its own ranks, which are the same command again
 * under the launcher. */
#pragma once
#include "src/launch/launch.h"

/* What the launching process tells its ranks; how they know that they are ranks. */
#define FSDP_BENCH_REPORT_ENV "FSDP_BENCH_REPORT"

/* Each is a file, bench_<kind>.c; argv[0] is "bench". They return the exit code. */
int fsdp_bench_train_main(int argc, char **argv);
int fsdp_bench_collectives_main(int argc, char **argv);

/* Run `argv` on so many ranks, bound to cores, with `report` in their environment. An error: they
 * could not be started. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_run(int ranks, char **argv, const char *report,
                                               fsdp_attempt *attempt);
/* On a rank what it was told, NULL on the launching process; FSDP_ERR_INVALID under another
 * launcher. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_report(const char **report);
