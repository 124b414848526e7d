/* Checks whether the weights in a checkpoint belong to the model that a config.json describes. */
#pragma once
#include <fsdp/nn.h>

#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

/* The tensors of a checkpoint that a model uses. */
typedef struct fsdp_weights_use {
    /* [n] Items of the checkpoint, sorted by address; borrowed. NULL: the config.json of the model
     * cannot be used, so it is not known which tensors the model uses. */
    const fsdp_source_item **items;
    size_t n;
} fsdp_weights_use;

void fsdp_weights_use_free(fsdp_weights_use *use); /* accepts {0} */

/* Compare the model's state dict in `weights` with the model that the config.json of `model`
 * describes. `model` is a folder or a hub name. Names and shapes are compared, and no data are
 * read. If config.json is missing, lacks a required key, or describes a model that this program
 * does not support, nothing is compared and FSDP_OK is returned.
 *
 * Two differences are not errors. First, `weights` may have tensors that the model does not use.
 * Second, `weights` may lack the head or a part that is new in the model, such as a classifier.
 * Like transformers, this program then ties the head to the embedding, or initializes the missing
 * weights at random.
 *
 * @param change out: the parts to remove from the names in `weights` to get the names of the model.
 * This function compares names without these parts
 * @param use out: the tensors that the model uses, and buffers that old versions of transformers
 * stored. May be NULL
 * @return FSDP_ERR_INVALID if a tensor is missing or has a different shape; the message contains
 * the name of the tensor. FSDP_ERR_NOT_FOUND if `model` does not exist, or if `weights` contains no
 * model */
FSDP_MUST_CHECK fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                                             fsdp_name_change *change, fsdp_weights_use *use);

/* Check that the name of each tensor of the model in `weights` is in `names`. Buffers that old
 * versions of transformers saved (fsdp_load_is_old_buffer()) need not be in `names`.
 *
 * This function returns FSDP_OK without a check in three cases: `weights` contains no model,
 * `weights` contains several models, or no tensor of the model is in `names`.
 *
 * @param owner the owner of `names`, for the error message
 * @return FSDP_ERR_INVALID if a tensor is not in `names`; the message names the first such
 * tensor */
FSDP_MUST_CHECK fsdp_status fsdp_weights_check_expected(const fsdp_source *weights,
                                                        const fsdp_parameter_list *names,
                                                        const char *owner);
