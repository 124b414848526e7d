/* How long a launcher of a job may be silent. Each sends a sign of life every second. TCP repeats
 * lost packets, so a network that is away for 2 s is survived. */
#pragma once

static const double FSDP_LOST_S = 9.0;
