/* Stop strings (stop_strings of transformers): texts that end a sequence. A sequence ends with the
 * id that completes one of these texts. The text may end in the middle of this id's token. As in
 * transformers, the text may begin in the prompt of a causal model. */
#pragma once
#include <fsdp/text.h>

#include "src/models/token_rules.h"

typedef struct fsdp_stop_strings {
    const fsdp_tokenizer *tokenizer; /* borrowed */
    const fsdp_rule_texts *texts;    /* borrowed */
    /* number of ids that are decoded for a check; large enough to contain the longest stop string
     * if every id has a text */
    size_t window;
} fsdp_stop_strings;

/* Return FSDP_ERR_INVALID if there are texts, but no tokenizer. */
FSDP_MUST_CHECK fsdp_status fsdp_stop_strings_init(fsdp_stop_strings *stop,
                                                   const fsdp_tokenizer *tokenizer,
                                                   const fsdp_rule_texts *texts);
/* Set *ends to true if the id `next`, after `ids` [n], completes one of the texts. */
FSDP_MUST_CHECK fsdp_status fsdp_stop_strings_check(const fsdp_stop_strings *stop,
                                                    const int32_t *ids, size_t n, int32_t next,
                                                    bool *ends);
