/* The simplest model: each piece is one token, or the unknown token. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* Create a model. It takes ownership of `vocabulary`, also on failure. If the vocabulary does not
 * contain the text `unk_token`, encoding an unknown piece fails. */
FSDP_MUST_CHECK fsdp_status fsdp_wordlevel_create(fsdp_vocabulary *vocabulary,
                                                  const char *unk_token, fsdp_token_model **out);
