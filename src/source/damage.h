/* How damage to a checkpoint is reported. */
#pragma once

/* A function that is called for each damage, and for each part that could not be read, with a
 * sentence that names the file and the item. */
typedef void fsdp_damage_fn(const char *damage, void *context);
