/* The callback that reports damage to a checkpoint. */
#pragma once

/* Called for each case of damage and for each part that could not be read. `damage` is a sentence
 * that names the file and the item. */
typedef void fsdp_damage_fn(const char *damage, void *context);
