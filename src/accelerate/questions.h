/* The questions of `accelerate config` on its FSDP path, with the same choices, order and defaults,
 * and the file that it writes. What this program cannot do (DeepSpeed, other devices) is refused
 * when it is chosen. */
#pragma once
#include "src/accelerate/menu.h"
#include "src/accelerate/yaml_tree.h"

/* Make a configuration.
 *
 * `given` [n]: answers as "key=value", which are not asked for. Keys are those of the file, with or
 * without "fsdp_", also old ones (fsdp_sharding_strategy); a choice may also be given by its
 * number. `io`: where to ask what is not given; NULL: not asked, the defaults count, with FSDP as
 * the default type.
 *
 * Returns FSDP_ERR_INVALID for a key or value that is wrong, that contradicts others, or that is
 * missing; the message names it and what is possible. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_ask(const char *const *given, size_t n,
                                                const fsdp_menu_io *io, fsdp_yaml *config);
