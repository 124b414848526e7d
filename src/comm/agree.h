/* One rank's error is the others' hang: before ranks go on together, they agree that all are well.
 */
#pragma once
#include <fsdp/comm.h>

/* Collective. FSDP_OK if `mine` is FSDP_OK on every rank. Else the first failing rank's status on
 * every rank: with its own message there, and "rank 1: <its message>" on the others.
 * group NULL: `mine`. */
FSDP_MUST_CHECK fsdp_status fsdp_agree(fsdp_group *group, fsdp_status mine);
