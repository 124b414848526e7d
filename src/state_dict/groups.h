/* Options of parameter groups under torch's names. */
#pragma once
#include "src/optim/optimizer.h"
#include "src/state_dict/state_dict.h"

/* Put every key of a group's options; before the last one of `keys` [n_keys], which is theirs, come
 * those of the group. `prefix` is put before the keys' names. */
FSDP_MUST_CHECK fsdp_status fsdp_state_put_group(fsdp_state_dict *dict, const char *optimizer,
                                                 const fsdp_optimizer_options *options,
                                                 fsdp_state_key *keys, int n_keys,
                                                 const char *prefix);
/* Take what `dict` has of "<group>.<key>" over into *options; keys that it has not stay. */
FSDP_MUST_CHECK fsdp_status fsdp_state_take_group(const fsdp_state_dict *dict, const char *group,
                                                  const char *optimizer,
                                                  fsdp_optimizer_options *options);
/* Is `key` one of a group's options in torch's optimizer of that name? */
bool fsdp_state_group_has(const char *optimizer, const char *key);
/* The first option that every version of that optimizer writes and "<group>.<key>" of `dict` lacks;
 * NULL: it has all. */
const char *fsdp_state_group_lacks(const fsdp_state_dict *dict, const char *group,
                                   const char *optimizer);
