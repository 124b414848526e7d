/* Checks whether weights belong to the model of a config.json. */
#pragma once
#include <fsdp/nn.h>

#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

/* The tensors of a checkpoint that a model uses. */
typedef struct fsdp_weights_use {
    /* [n] sorted by address; borrowed from the source. NULL if the model is not known. */
    const fsdp_source_item **items;
    size_t n;
} fsdp_weights_use;

void fsdp_weights_use_free(fsdp_weights_use *use); /* accepts {0} */

/* Compare names and shapes of the model's state dict in `weights` with those of the model described
 * by the config.json of `model`, a folder or hub name. Data are not read.
 *
 * Tensors that the model does not use are not an error and are not in *use. Buffers that old
 * versions stored are in *use. `use` may be NULL. A missing head is not an error either: it may be
 * tied, or it is drawn, and transformers loads such weights. Without a config.json that
 * fsdp_model_config_read() can read, nothing is compared and the result is FSDP_OK.
 *
 * @param change out: the prefixes to remove from names to obtain those of the model; names were
 * compared without these prefixes
 * @return FSDP_ERR_INVALID naming a tensor that is missing or has another shape; FSDP_ERR_NOT_FOUND
 * if `model` does not exist, or `weights` have no model */
FSDP_MUST_CHECK fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                                             fsdp_name_change *change, fsdp_weights_use *use);

/* Check that the model's state dict in `weights` has no other tensors than `names`. Old buffers are
 * ignored.
 *
 * @param owner says in the message whose names `names` are
 * @return FSDP_ERR_INVALID naming the first other tensor; FSDP_OK also if `weights` have no model
 * or several, or if none of the model's tensors is in `names` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_check_expected(const fsdp_source *weights,
                                                        const fsdp_parameter_list *names,
                                                        const char *owner);
