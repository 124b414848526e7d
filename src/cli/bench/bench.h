/* Declarations that the kinds of benchmark share: `fsdp bench train` and `fsdp bench collectives`.
 * Each kind starts its ranks by running its own command again under the launcher. */
#pragma once
#include "src/launch/launch.h"

/* The environment variable with which the launching process passes a value to its ranks. Each
 * kind of benchmark has its own form of this value. The form for `fsdp bench train` is described in
 * bench_train.c. */
#define FSDP_BENCH_REPORT_ENV "FSDP_BENCH_REPORT"

/* Each of these functions runs one kind of benchmark and returns the exit code. argv[0] is "bench"
 * and argv[1] is the kind. The file of a kind is bench_<kind>.c. */
int fsdp_bench_train_main(int argc, char **argv);
int fsdp_bench_collectives_main(int argc, char **argv);

/* Run the command `argv` on `ranks` ranks, each bound to its own cores, and wait until they have
 * ended. Each rank gets `report` as its FSDP_BENCH_REPORT_ENV. *attempt describes how the ranks
 * ended. Returns an error if the ranks could not be started. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_run(int ranks, char **argv, const char *report,
                                               fsdp_attempt *attempt);
/* Set *report to the value of FSDP_BENCH_REPORT_ENV if this process is a rank, and to NULL if it is
 * the launching process. Returns FSDP_ERR_INVALID if `fsdp launch` started this process. */
FSDP_MUST_CHECK fsdp_status fsdp_bench_job_report(const char **report);
