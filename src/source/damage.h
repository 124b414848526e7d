/* How damage to a checkpoint is reported. */
#pragma once

/* Called with each damage, and each part that is not read: a sentence that names file and item. */
typedef void fsdp_damage_fn(const char *damage, void *context);
