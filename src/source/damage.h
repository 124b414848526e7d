/* How damage to a checkpoint is reported. */
#pragma once

/* Called for each damage and for each part that could not be read, with a sentence that names file
 * and item. */
typedef void fsdp_damage_fn(const char *damage, void *context);
