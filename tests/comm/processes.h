/* Ranks as processes over the shm transport, joined as by `fsdp launch`. The test program must not
 * have started a thread before. */
#pragma once
#include <fsdp/comm.h>

#include "src/comm/rendezvous.h"

enum {
    MAX_PROCESSES = 16
};

typedef struct process_result {
    fsdp_status status; /* what the body returned */
    char message[1024];
    int signal;     /* the signal that killed it, or 0 */
    double ended_s; /* seconds from the first fork to its end */
} process_result;

/* Fork world_size ranks, run body in each, and wait. `results` [world_size]. A child that is killed
 * by a signal, or ends without leaving the group, is reported to its peers as the launcher would
 * do. `report` may be NULL; its text is empty if no rank failed. */
FSDP_MUST_CHECK fsdp_status run_processes(int world_size, fsdp_rank_fn *body, void *arg,
                                          process_result *results, fsdp_rendezvous_report *report);
