/* Runs jobs on the hosts of --hosts or --hostfile. (mpirun has the same options.) There is one
 * launcher. It runs mpirun, which starts MPI's daemons on the hosts by ssh. `fsdp` must have the
 * same path on all hosts. */
#pragma once
#include "src/hosts/mpi.h"
#include "src/launch/launch.h"
#include "src/launch/launch_options.h"

typedef struct fsdp_host_list {
    char **names; /* [count]. Owned */
    int *ranks;   /* [count] number of ranks of each host. Owned */
    size_t count, cap, ranks_cap;
} fsdp_host_list;

/* Read the hosts of config->hosts or config->hostfile. A host without a number of ranks gets
 * config->n_ranks ranks. If a host is listed several times, its rank counts are added. */
FSDP_MUST_CHECK fsdp_status fsdp_host_list_read(const fsdp_launch_config *config,
                                                fsdp_host_list *list);
void fsdp_host_list_fini(fsdp_host_list *list);
/* Return the largest number of ranks that a host has. launch->n_ranks must be this number, because
 * launch->redirects and similar arrays are indexed by local rank. */
int fsdp_host_list_most_ranks(const fsdp_host_list *list);

/* Run a job on the hosts. On success, set *exit_code to the exit code of this process. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_run_by_ssh(fsdp_launch *launch,
                                                  const fsdp_launch_config *config,
                                                  const fsdp_host_list *list, int *exit_code);
