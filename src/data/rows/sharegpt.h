/* Conversations in the form of ShareGPT: {"conversations": [{"from": "human", "value": "..."},
 * ...]}.
 */
#pragma once
#include "src/base/json.h"

/* Return true if the row has "conversations", a list of objects, and no "messages". */
bool fsdp_is_sharegpt_row(fsdp_json_node row);
/* Create a document that has the conversation as "messages". In each message, the keys "from" and
 * "value" become "role" and "content"; a message that already has "role" and "content" keeps them.
 * The speakers human, gpt, chatgpt, bing, bard and model become user or assistant; any other
 * speaker, such as system or tool, is the role unchanged. The text "system" of the row, if there is
 * one, becomes the first message. "tools", "documents" and "chat_template_kwargs" are taken from
 * the row. The caller owns *out. */
FSDP_MUST_CHECK fsdp_status fsdp_sharegpt_convert(fsdp_json_node row, fsdp_json **out);
