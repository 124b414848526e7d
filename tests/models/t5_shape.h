/* Small shapes for tests of T5. */
#pragma once
#include <fsdp/models.h>

/* One that divides badly: 3 heads of 5, width 15, 17 ids, two layers and one, gated, no dropout, a
 * head of its own. */
fsdp_model_config t5_odd_shape(void);
