/* The callback that reports damage to a checkpoint. */
#pragma once

/* Called for each case of damage that is found, and for each item of the checkpoint that cannot be
 * read. `damage` is a sentence that names the file and the item. */
typedef void fsdp_damage_fn(const char *damage, void *context);
