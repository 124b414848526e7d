/* Converts conversations to ids for causal models. */
#pragma once
#include <fsdp/data.h>

#include "src/base/json.h"
#include "src/base/str.h"

/* Return true if the row is a conversation: it has a list under the key "messages", or lists of
 * objects under the keys "prompt" and "completion", or it has the form of ShareGPT (sharegpt.h). */
bool fsdp_is_chat_row(fsdp_json_node row);
/* Return the keys that a conversation uses; the last item is NULL. */
const char *const *fsdp_chat_row_keys(fsdp_json_node row);
/* Make a text from the conversation with options->chat.chat_template. Set example->source to the
 * ids of this text, truncated to options->max_length. No special tokens are added, because the text
 * already contains those that the template writes. Set example->labels to a copy of the ids in
 * which FSDP_IGNORE_INDEX replaces each id that has no loss; if all ids have a loss,
 * example->labels is left empty. As in transformers, a token has a loss if any part of its text has
 * a loss. Set *cut to the number of ids beyond max_length. Unless `whole` is NULL, replace its
 * contents by the text. Error messages contain neither file nor line; the caller adds them. */
FSDP_MUST_CHECK fsdp_status fsdp_chat_text_encode(const fsdp_dataset_options *options,
                                                  fsdp_json_node row, fsdp_example *example,
                                                  int64_t *cut, fsdp_str *whole);
/* Search the messages of a conversation for special tokens, and add their number to the count of
 * the calling thread (fsdp_special_in_text_of_thread()). */
void fsdp_chat_search_special(const fsdp_tokenizer *tokenizer, fsdp_json_node row);
