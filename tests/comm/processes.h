/* Ranks as processes over the shm transport, joined as `fsdp launch` joins them. The test program
 * must not have started a thread before. */
#pragma once
#include <fsdp/comm.h>

#include "src/comm/rendezvous.h"

enum {
    MAX_PROCESSES = 16
};

typedef struct process_result {
    fsdp_status status; /* what the body returned */
    char message[1024];
    int signal;     /* that killed it, or 0 */
    double ended_s; /* after the first fork */
} process_result;

/* Fork world_size ranks, run body in each, wait. `results` [world_size]. A child that dies of a
 * signal, or ends without leaving the group, is reported to its peers as the launcher would.
 * `report` may be NULL; its text is empty if no rank failed. */
FSDP_MUST_CHECK fsdp_status run_processes(int world_size, fsdp_rank_fn *body, void *arg,
                                          process_result *results, fsdp_rendezvous_report *report);
