/* Shows what a rank is doing to a process that watches the rank from outside of its group. */
#pragma once

#include "src/comm/control.h"

/* The struct is in memory that the rank shares with the process that watches it. */
typedef struct fsdp_comm_watched {
    _Atomic int32_t rank_plus_1; /* 1 + the world rank; 0: the rank has not joined */
    fsdp_comm_place at;
} fsdp_comm_watched;

/* From now on, fsdp_group_at() also writes to *watched. Call this at most once, before the rank
 * joins its group. *watched must live as long as the process. */
void fsdp_comm_set_watched(fsdp_comm_watched *watched);
