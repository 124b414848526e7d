/* Do weights belong to the model of a config.json? */
#pragma once
#include <fsdp/nn.h>

#include "src/source/source.h"
#include "src/hf/wrapped_names.h"

/* Tensors of a checkpoint for which a model has a place. */
typedef struct fsdp_weights_use {
    const fsdp_source_item **items; /* [n] by address; the source's; NULL: the model is not known */
    size_t n;
} fsdp_weights_use;

void fsdp_weights_use_free(fsdp_weights_use *use); /* accepts all zero */

/* Compare names and shapes of the model's state dict in `weights` with those of the model that the
 * config.json of `model`, a folder or hub name, describes. Data are not read.
 *
 * Tensors that the model has no place for are no misfit, but missing in *use (NULL: not wanted);
 * buffers that old versions stored are in it. Nor is it a missing head, which may be tied or is
 * drawn: transformers loads such weights. What fsdp_model_config_read() does not read cannot be
 * compared, nor a folder without config.json: FSDP_OK.
 *
 * @param change out: what names have to lose to be the model's; they were compared without it
 * @return FSDP_ERR_INVALID naming a tensor that is missing or has another shape; FSDP_ERR_NOT_FOUND
 *         if there is no such model, or none in `weights` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                                             fsdp_name_change *change, fsdp_weights_use *use);

/* Does the model's state dict in `weights` have tensors beyond `names`, old buffers apart?
 *
 * @param owner says whose names they are, in the message
 * @return FSDP_ERR_INVALID naming the first of them; FSDP_OK where no model is found,
 *         several are, or no name is one of `names` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_check_expected(const fsdp_source *weights,
                                                        const fsdp_parameter_list *names,
                                                        const char *owner);
