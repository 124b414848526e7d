/* How long a launcher of a job may be silent before it counts as lost. Each launcher sends a sign
 * of life every second. TCP sends lost packets again, so a job survives if the network fails for 2
 * s. */
#pragma once

static const double FSDP_LOST_S = 6.0;
