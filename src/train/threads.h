/* How many threads a rank computes with, when nobody says. */
#pragma once
#include <fsdp/comm.h>

/* The cores this rank may run on, shared out among the ranks that may run on the same ones; at
 * least 1. Collective. group NULL: a rank alone. */
FSDP_MUST_CHECK fsdp_status fsdp_default_threads(fsdp_group *group, int *threads);
