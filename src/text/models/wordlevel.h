/* The WordLevel model: each piece is one token. A piece that is not in the vocabulary becomes the
 * unknown token. */
#pragma once
#include "src/text/models/token_model.h"
#include "src/text/models/vocabulary.h"

/* Create a model. It takes ownership of `vocabulary`, even on failure. If unk_token is not in the
 * vocabulary, encoding an unknown piece fails. */
FSDP_MUST_CHECK fsdp_status fsdp_wordlevel_create(fsdp_vocabulary *vocabulary,
                                                  const char *unk_token, fsdp_token_model **out);
