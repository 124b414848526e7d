/* Small shapes for tests of T5. */
#pragma once
#include <fsdp/models.h>

/* A shape that divides badly: 3 heads of 5, width 15, 17 ids, two encoder layers and one decoder
 * layer, gated, no dropout, a separate head. */
fsdp_model_config t5_odd_shape(void);
