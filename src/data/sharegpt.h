/* Conversations in the form of ShareGPT: {"conversations": [{"from": "human", "value": "..."},
 * ...]}.
 */
#pragma once
#include "src/base/json.h"

/* Return true if the row has "conversations", a list of objects, and no "messages". */
bool fsdp_is_sharegpt_row(fsdp_json_node row);
/* Create a document with the conversation as "messages". "from" and "value" become "role" and
 * "content"; messages may also have these. The speakers human, gpt, chatgpt, bing, bard and model
 * become user or assistant; others, such as system and tool, are roles as they are. The text
 * "system" of the row, if there is one, becomes the first message. "tools", "documents" and
 * "chat_template_kwargs" are the row's. */
FSDP_MUST_CHECK fsdp_status fsdp_sharegpt_convert(fsdp_json_node row, fsdp_json **out);
