/* Asks the questions that `accelerate config` asks for FSDP, with the same choices, order and
 * defaults, and makes the configuration that `accelerate config` would write. If the user chooses
 * something that this program does not support (DeepSpeed, other devices), the answer is
 * refused. */
#pragma once
#include "src/accelerate/menu.h"
#include "src/accelerate/yaml_tree.h"

/* Set *config to a new configuration, which the caller owns.
 *
 * `given` [n] has answers in the form "key=value". The user is not asked the questions to which
 * these answers belong. Keys are those of the file, with or without "fsdp_", or keys of older
 * versions such as fsdp_sharding_strategy. A choice may also be given by its number. All other
 * questions are asked through `io`. If `io` is NULL, they get their defaults; in that case, the
 * default of distributed_type is FSDP.
 *
 * Return FSDP_ERR_INVALID if a key or value is wrong, contradicts others, or is missing, and
 * FSDP_ERR_UNSUPPORTED if this program does not support a value. The message contains the key and
 * what is possible. */
FSDP_MUST_CHECK fsdp_status fsdp_accelerate_ask(const char *const *given, size_t n,
                                                const fsdp_menu_io *io, fsdp_yaml *config);

/* Return true if one of the answers `given` [n] is the answer to the question with the key `key`,
 * which is spelled as in the file. Any answer to distributed_type also counts as an answer to
 * use_fsdp, because it decides whether FSDP is used. */
bool fsdp_accelerate_is_given(const char *const *given, size_t n, const char *key);
