/* Do weights belong to the model of a config.json? */
#pragma once
#include "src/ckpt/source.h"
#include "src/ckpt/wrapped_names.h"

/* Compare names and shapes of the model's state dict in `weights` with those of the model that the
 * config.json of `model`, a folder or hub name, describes. Data are not read.
 *
 * Tensors that the model has no place for are no misfit, nor is it a missing head, which may be
 * tied or is drawn: transformers loads such weights. What fsdp_model_config_read() does not read
 * cannot be compared, nor a folder without config.json: FSDP_OK.
 *
 * @param change out: what names have to lose to be the model's; they were compared without it
 * @return FSDP_ERR_INVALID naming a tensor that is missing or has another shape; FSDP_ERR_NOT_FOUND
 *         if there is no such model, or none in `weights` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                                             fsdp_name_change *change);
