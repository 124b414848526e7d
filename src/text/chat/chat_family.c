/* The chat templates of known families of models. They are for model folders that have no template.
 *
 * Each template writes the same text as the family's own template if the messages contain only
 * text. The template of qwen2.5 can also write tools; the other templates return an error if there
 * are tools. The assistant's texts are in {% generation %} blocks. Such a block also contains the
 * token that ends the turn, and the characters between this token and the next message. */
#include <string.h>

#include "src/base/assert.h"
#include "src/text/chat/chat.h"

/* A macro text(content) of the template: it writes the text of a message. The content may be a list
 * of parts. */
#define TEXT_MACRO                                                                                 \
    "{%- macro text(content) -%}\n"                                                                \
    "{%- if content is string -%}{{ content }}\n"                                                  \
    "{%- elif content is iterable -%}\n"                                                           \
    "{%- for part in content -%}\n"                                                                \
    "{%- if part.text is not string -%}\n"                                                         \
    "{{ raise_exception('a message with a part that is not a text') }}\n"                          \
    "{%- endif -%}{{ part.text }}\n"                                                               \
    "{%- endfor -%}\n"                                                                             \
    "{%- endif -%}\n"                                                                              \
    "{%- endmacro -%}\n"

#define NO_TOOLS                                                                                   \
    "{%- if tools -%}{{ raise_exception('this chat template takes no tools') }}{%- endif -%}\n"    \
    "{%- for message in messages if message.tool_calls or message.role == 'tool' -%}\n"            \
    "{{ raise_exception('this chat template takes no calls of tools') }}\n"                        \
    "{%- endfor -%}\n"

/* A part of a template. It sets `system` to the text of the system message, if there is one, and
 * `turns` to the other messages, whose roles must alternate between user and assistant. */
#define SYSTEM_AND_TURNS                                                                           \
    "{%- if messages and messages[0].role == 'system' -%}\n"                                       \
    "{%- set system = text(messages[0].content) -%}\n"                                             \
    "{%- set turns = messages[1:] -%}\n"                                                           \
    "{%- else -%}{%- set turns = messages -%}{%- endif -%}\n"                                      \
    "{%- for message in turns -%}\n"                                                               \
    "{%- if message.role != ('assistant' if loop.index0 % 2 else 'user') -%}\n"                    \
    "{{ raise_exception('the roles must be user and assistant in turn, after an optional system "  \
    "message') }}\n"                                                                               \
    "{%- endif -%}\n"                                                                              \
    "{%- endfor -%}\n"

static const char chatml[] = TEXT_MACRO NO_TOOLS
    "{%- for message in messages -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' -}}\n"
    "{%- if message.role == 'assistant' -%}\n"
    "{%- generation -%}{{ text(message.content) + '<|im_end|>\\n' }}{%- endgeneration -%}\n"
    "{%- else -%}{{ text(message.content) + '<|im_end|>\\n' }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";

static const char qwen25[] = TEXT_MACRO
    "{%- set helper = 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' -%}\n"
    "{%- set has_system = messages and messages[0].role == 'system' -%}\n"
    "{%- set system = text(messages[0].content) if has_system else helper -%}\n"
    "{{- '<|im_start|>system\\n' + system -}}\n"
    "{%- if tools -%}\n"
    "{{- '\\n\\n# Tools\\n\\nYou may call one or more functions to assist with the user "
    "query.\\n\\n"
    "You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' -}}\n"
    "{%- for tool in tools -%}{{ '\\n' + (tool | tojson) }}{%- endfor -%}\n"
    "{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and "
    "arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{\"name\": "
    "<function-name>, \"arguments\": <args-json-object>}\\n</tool_call>' -}}\n"
    "{%- endif -%}\n"
    "{{- '<|im_end|>\\n' -}}\n"
    "{%- for message in (messages[1:] if has_system else messages) -%}\n"
    "{%- if message.role == 'tool' -%}\n"
    "{{- '' if loop.previtem and loop.previtem.role == 'tool' else '<|im_start|>user' -}}\n"
    "{{- '\\n<tool_response>\\n' + text(message.content) + '\\n</tool_response>' -}}\n"
    "{{- '' if loop.nextitem and loop.nextitem.role == 'tool' else '<|im_end|>\\n' -}}\n"
    "{%- elif message.role == 'assistant' and message.tool_calls -%}\n"
    "{{- '<|im_start|>assistant' -}}\n"
    "{{- '\\n' -}}\n"
    "{%- generation -%}\n"
    "{%- set content = text(message.content) -%}{{ content }}\n"
    "{%- for call in message.tool_calls -%}\n"
    "{%- set function = call.function if call.function is defined else call -%}\n"
    "{{- ('\\n' if content or not loop.first else '') + '<tool_call>\\n{\"name\": \"' + "
    "function.name + '\", \"arguments\": ' + (function.arguments | tojson) + '}\\n</tool_call>' "
    "-}}\n"
    "{%- endfor -%}\n"
    "{{- '<|im_end|>\\n' -}}\n"
    "{%- endgeneration -%}\n"
    "{%- elif message.role == 'assistant' -%}\n"
    "{{- '<|im_start|>assistant\\n' -}}\n"
    "{%- generation -%}{{ text(message.content) + '<|im_end|>\\n' }}{%- endgeneration -%}\n"
    "{%- else -%}\n"
    "{{- '<|im_start|>' + message.role + '\\n' + text(message.content) + '<|im_end|>\\n' -}}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";

static const char llama3[] =
    TEXT_MACRO NO_TOOLS "{{- bos_token | default('<|begin_of_text|>', true) -}}\n"
                        "{%- for message in messages -%}\n"
                        "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' -}}\n"
                        "{%- set content = (text(message.content) | trim) + '<|eot_id|>' -%}\n"
                        "{%- if message.role == 'assistant' -%}\n"
                        "{%- generation -%}{{ content }}{%- endgeneration -%}\n"
                        "{%- else -%}{{ content }}{%- endif -%}\n"
                        "{%- endfor -%}\n"
                        "{%- if add_generation_prompt -%}\n"
                        "{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}\n"
                        "{%- endif -%}\n";

/* Mistral 7B Instruct v0.3 writes the text of the system message as a part of the first
 * question. */
static const char mistral[] = TEXT_MACRO NO_TOOLS SYSTEM_AND_TURNS
    "{%- set eos = eos_token | default('</s>', true) -%}\n"
    "{{- bos_token | default('<s>', true) -}}\n"
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}\n"
    "{{- '[INST] ' -}}\n"
    "{%- if loop.first and system is defined -%}{{ system + '\\n\\n' }}{%- endif -%}\n"
    "{{- text(message.content) + '[/INST]' -}}\n"
    "{%- else -%}\n"
    "{%- generation -%}{{ ' ' + (text(message.content) | trim) + eos }}{%- endgeneration -%}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n";

static const char zephyr[] =
    TEXT_MACRO NO_TOOLS "{%- set eos = eos_token | default('</s>', true) -%}\n"
                        "{%- for message in messages -%}\n"
                        "{{- '<|' + message.role + '|>\\n' -}}\n"
                        "{%- set content = text(message.content) + eos + '\\n' -%}\n"
                        "{%- if message.role == 'assistant' -%}\n"
                        "{%- generation -%}{{ content }}{%- endgeneration -%}\n"
                        "{%- else -%}{{ content }}{%- endif -%}\n"
                        "{%- endfor -%}\n"
                        "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}\n";

/* Gemma has no system messages. As in Gemma 3's template, the text of a system message is put
 * before the first question. */
static const char gemma[] = TEXT_MACRO NO_TOOLS SYSTEM_AND_TURNS
    "{{- bos_token | default('<bos>', true) -}}\n"
    "{%- for message in turns -%}\n"
    "{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\\n' -}}\n"
    "{%- if loop.first and system is defined -%}{{ system + '\\n\\n' }}{%- endif -%}\n"
    "{%- set content = (text(message.content) | trim) + '<end_of_turn>\\n' -%}\n"
    "{%- if message.role == 'assistant' -%}\n"
    "{%- generation -%}{{ content }}{%- endgeneration -%}\n"
    "{%- else -%}{{ content }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}\n";

static const char *const names[] = {"chatml",  "gemma",  "llama3", "mistral",
                                    "qwen2.5", "zephyr", NULL};
static const char *const templates[] = {chatml, gemma, llama3, mistral, qwen25, zephyr};

const char *const *fsdp_chat_template_families(void)
{
    return names;
}

const char *fsdp_chat_family_template(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(templates); i++)
        if (strcmp(name, names[i]) == 0)
            return templates[i];
    return NULL;
}
