/* Writes and reads trainer_state.json, the part of a run's state that is neither in the model nor
 * in the optimizer. */
#pragma once
#include "src/dcp/disks.h"
#include "src/train/trainer_internal.h"

#define FSDP_TRAINER_STATE "trainer_state.json"

/* Create *state, the current content of trainer_state.json. The caller owns it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_json(const fsdp_trainer *t, fsdp_json **state);
/* For each option of fsdp_train_options() that is stored in `config`, add a key to `to`. The key is
 * the name of the option, and its value is the text of the option's value. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_put_configuration(fsdp_json_node to,
                                                           const fsdp_train_config *config);
/* Write `state` into `dir` as trainer_state.json. Before writing, add to `state` its checksum, and
 * the sizes and checksums of the model's and the optimizer's files that are already in `dir`
 * (checkpoint_tie.h). */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write(fsdp_json *state, const char *dir);

/* Used instead of fsdp_trainer_state_write() if hosts have disks of their own. Also add the field
 * "hosts" to `state`; it lists, for each host, the ranks whose files are on the disk of this host.
 * `state` is used only on rank 0. Collective. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_write_on_disks(fsdp_json *state, const char *dir,
                                                              const fsdp_disks *disks,
                                                              fsdp_group *group);
/* Return the name of the host that had the files of `rank` when the checkpoint was saved, according
 * to the field "hosts" of trainer_state.json; "" if the field does not exist or does not list
 * `rank`. The name is borrowed from `root`. */
const char *fsdp_trainer_state_host_of(fsdp_json_node root, int64_t rank);

/* Return the largest number of steps that the optimizer has counted for any parameter. */
int64_t fsdp_trainer_counted_steps(const fsdp_trainer *t);

/* The program that wrote trainer_state.json. transformers' Trainer writes a file of this name with
 * other content. FSDP_TRAINER_STATE_NONE means that there is no such file. */
typedef enum fsdp_trainer_state_kind {
    FSDP_TRAINER_STATE_NONE,
    FSDP_TRAINER_STATE_OWN,
    FSDP_TRAINER_STATE_TRANSFORMERS
} fsdp_trainer_state_kind;

typedef struct fsdp_trainer_state_owner {
    fsdp_trainer_state_kind kind;
    int64_t step; /* TRANSFORMERS: the file's global_step; otherwise -1 */
    double epoch; /* TRANSFORMERS: number of trained epochs, may be fractional; 0: unknown */
} fsdp_trainer_state_owner;

/* Find out which program wrote trainer_state.json in `dir`. Return FSDP_ERR_FORMAT if
 * neither this program nor transformers' Trainer wrote the file. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_find(const char *dir,
                                                    fsdp_trainer_state_owner *owner);
/* Read trainer_state.json in `dir` into *state, which the caller owns. Return FSDP_ERR_FORMAT if
 * its checksum is wrong. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_open(const char *dir, fsdp_json **state);
/* Read trainer_state.json in `dir` into *t. Return FSDP_ERR_INVALID if this run cannot continue the
 * saved run, because the next steps would read other rows than the saved run would have read, or
 * because the optimizer is not the same. The message contains the saved and the current value.
 * Print to t->out which of the remaining options have changed. *counted is set to the saved value
 * of fsdp_trainer_counted_steps(), or to -1 if the file does not have it. */
FSDP_MUST_CHECK fsdp_status fsdp_trainer_state_read(fsdp_trainer *t, const char *dir,
                                                    int64_t *counted);
