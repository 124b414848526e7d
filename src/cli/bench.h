/* What the kinds of `fsdp bench` share. Each kind starts its own ranks: the same command, run again
 * under the launcher. */
#pragma once
#include "src/launch/launch.h"

/* Set by the launching process for its ranks. A process with this variable is a rank; the value
 * says where it must report (see bench_train.c). */
#define FSDP_BENCH_REPORT_ENV "FSDP_BENCH_REPORT"

/* Each kind has a file, bench_<kind>.c. argv[0] is "bench". Returns the exit code. */
int fsdp_bench_train_main(int argc, char **argv);
int fsdp_bench_collectives_main(int argc, char **argv);

/* Run `argv` on `ranks` ranks that are bound to cores, with `report` in their environment. Returns
 * an error if they could not be started. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_run(int ranks, char **argv, const char *report,
                                               fsdp_attempt *attempt);
/* On a rank, *report is the value of FSDP_BENCH_REPORT_ENV. On the launching process it is NULL.
 * FSDP_ERR_INVALID under another launcher. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_report(const char **report);
