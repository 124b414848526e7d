/* Jobs on hosts that are named in --hosts or --hostfile, as mpirun has them: one launcher, which
 * starts MPI's daemons on the hosts by ssh. `fsdp` must have the same path on all of them. */
#pragma once
#include "src/hosts/mpi.h"
#include "src/launch/launch.h"
#include "src/launch/launch_options.h"

typedef struct fsdp_host_list {
    char **names; /* [count]. Owned */
    int *ranks;   /* [count] number of ranks of each host. Owned */
    size_t count, cap, ranks_cap;
} fsdp_host_list;

/* Read the hosts of config->hosts or config->hostfile. A host without a number of ranks has
 * config->n_ranks. A host that is listed again has more ranks. */
FSDP_MUST_CHECK fsdp_status fsdp_host_list_read(const fsdp_launch_config *config,
                                                fsdp_host_list *list);
void fsdp_host_list_fini(fsdp_host_list *list);
/* Return the largest number of ranks of a host. launch->n_ranks must be this number: the options of
 * the ranks are those of local ranks. */
int fsdp_host_list_most_ranks(const fsdp_host_list *list);

/* Run a job on the hosts. After FSDP_OK, *exit_code is the exit code. */
FSDP_MUST_CHECK fsdp_status fsdp_hosts_run_by_ssh(fsdp_launch *launch,
                                                  const fsdp_launch_config *config,
                                                  const fsdp_host_list *list, int *exit_code);
