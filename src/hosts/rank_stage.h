/* The commands of `fsdp` that MPI's programs start for `fsdp launch`, and that users do not type.
 */
#pragma once
#include <fsdp/base.h>

/* Watch one rank, with the place that MPI's daemon gives in the environment: start it with
 * torchrun's variables, and pass signals on. argv[1...] are absent if a launcher runs on this host,
 * which then sends the plan. Otherwise argv[1] is the number of ranks of each host, such as 2,2,
 * and argv[2 + l] is the plan of local rank l in hexadecimal digits (fsdp_rank_stage_words()).
 * *exit_code is for MPI's daemon. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_stage(int argc, char **argv, int *exit_code);

/* Be MPI's launch agent: argv[1] is the name of a host, the rest is the command line of the daemon,
 * which the launcher that waits on that host runs. Returns when the daemon has ended, with its exit
 * code. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_agent(int argc, char **argv, int *exit_code);
