/* The commands of `fsdp` that MPI's programs start for `fsdp launch`, and that users do not type.
 */
#pragma once
#include <fsdp/base.h>

/* Start one rank with torchrun's variables, watch it, and pass signals on to it. MPI's daemon gives
 * the number of the rank in the environment. If a launcher runs on this host, it sends the plan,
 * and argv[1...] are absent. Otherwise argv[1] is the number of an fsdp_bind, argv[2] lists the
 * number of ranks of each host, such as 2,2, and argv[3 + l] is the plan of local rank l in
 * hexadecimal digits. Set *exit_code to the exit code that MPI's daemon gets. */
FSDP_MUST_CHECK fsdp_status fsdp_rank_stage(int argc, char **argv, int *exit_code);

/* Run as MPI's launch agent. argv[1] is the name of a host, and the other words are the command
 * line of the daemon. Send both to the launcher, which gets the daemon started on that host. Return
 * when the daemon has ended, and set *exit_code to its exit code. */
FSDP_MUST_CHECK fsdp_status fsdp_launch_agent(int argc, char **argv, int *exit_code);
