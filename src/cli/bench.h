/* Declarations that the kinds of `fsdp bench` share. Each kind starts its own ranks by running the
 * same command again under the launcher. */
#pragma once
#include "src/launch/launch.h"

/* The launching process sets this variable for its ranks. The value depends on the kind; see
 * bench_train.c. */
#define FSDP_BENCH_REPORT_ENV "FSDP_BENCH_REPORT"

/* Each of these functions runs a kind of benchmark and returns the exit code. argv[0] is "bench".
 * The file of a kind is bench_<kind>.c. */
int fsdp_bench_train_main(int argc, char **argv);
int fsdp_bench_collectives_main(int argc, char **argv);

/* Run the command `argv` on `ranks` ranks, which are bound to cores. Each of them gets `report` as
 * its FSDP_BENCH_REPORT_ENV. Returns an error if the ranks could not be started. *attempt says how
 * the ranks ended. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_run(int ranks, char **argv, const char *report,
                                               fsdp_attempt *attempt);
/* Set *report to the value of FSDP_BENCH_REPORT_ENV on a rank, and to NULL in the launching
 * process. Returns FSDP_ERR_INVALID if this process was started by another launcher. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_report(const char **report);
