/* Checks whether weights belong to the model of a config.json. */
#pragma once
#include <fsdp/nn.h>

#include "src/hf/wrapped_names.h"
#include "src/source/source.h"

/* The tensors of a checkpoint that a model uses. */
typedef struct fsdp_weights_use {
    /* [n] items of the source, sorted by address; borrowed. NULL if the model is not known. */
    const fsdp_source_item **items;
    size_t n;
} fsdp_weights_use;

void fsdp_weights_use_free(fsdp_weights_use *use); /* accepts {0} */

/* Compare the model's state dict in `weights` with the model that the config.json of `model`, a
 * folder or hub name, describes. Names and shapes are compared, and no data are read.
 *
 * Tensors that the model does not use are not an error and are not in *use. Buffers that old
 * versions stored are in *use. `use` may be NULL. A missing head is not an error either: it may be
 * tied, or it is drawn, and transformers loads such weights. Without a config.json that
 * fsdp_model_config_read() can read, nothing is compared and the result is FSDP_OK.
 *
 * @param change out: the prefixes that must be removed from the names in `weights` to obtain those
 * of the model; the comparison ignores these prefixes
 * @return FSDP_ERR_INVALID naming a tensor that is missing or has another shape; FSDP_ERR_NOT_FOUND
 * if `model` does not exist, or if there is no model in `weights` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_fit(const fsdp_source *weights, const char *model,
                                             fsdp_name_change *change, fsdp_weights_use *use);

/* Check that `names` has a name for every tensor of the model's state dict in `weights`. Old
 * buffers need none.
 *
 * @param owner says in the message whose names `names` are
 * @return FSDP_ERR_INVALID naming the first tensor that is not in `names`; FSDP_OK also if there is
 * no model in `weights`, if there are several, or if none of the model's tensors is in `names` */
FSDP_MUST_CHECK fsdp_status fsdp_weights_check_expected(const fsdp_source *weights,
                                                        const fsdp_parameter_list *names,
                                                        const char *owner);
