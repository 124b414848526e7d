/**
 * @file
 * Chat templates: conversations become texts, as apply_chat_template() of transformers makes them.
 *
 * A model that was trained on conversations comes with a template, a small program in Jinja, that
 * writes a list of messages as one text. This library runs the part of Jinja that such templates
 * use. If a template uses another part, opening or rendering it fails, and the message names the
 * part and the line.
 *
 * For training, fsdp_chat_render() can also return which parts of the text the assistant wrote, so
 * that only these parts have a loss:
 *
 * - If the template has {% generation %} blocks, the assistant's texts are the texts in these
 *   blocks, as in transformers' assistant masks.
 * - Otherwise, two more texts are rendered for each turn of the assistant. The first text has the
 *   messages before the turn and the generation prompt. The second text has the same messages and
 *   the turn. The first text must be the beginning of the second, and the second must be the
 *   beginning of the whole text. What follows the first text in the second text is the assistant's
 *   text, including the token that ends the turn. Some templates write a message differently if
 *   other messages follow it: they drop the thoughts of earlier turns, or put the system's message
 *   before the last question. Rendering then fails, and the error names the message.
 */
#pragma once
#include <stddef.h>

#include <fsdp/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** An open template does not change, so several threads may use it at the same time. */
typedef struct fsdp_chat_template fsdp_chat_template;

/** A part [begin, end) of a text, in bytes. */
typedef struct fsdp_chat_span {
    size_t begin, end;
} fsdp_chat_span;

/** A conversation as text. Initialize it with {0}, and free it with fsdp_chat_text_fini(). */
typedef struct fsdp_chat_text {
    char *text; /**< [bytes] UTF-8, NUL-terminated */
    size_t bytes;
    fsdp_chat_span *spans; /**< [n_spans] the parts that fsdp_chat_options.spans names, in order */
    size_t n_spans;
} fsdp_chat_text;

FSDP_API void fsdp_chat_text_fini(fsdp_chat_text *text);

/** Which parts of the conversation's text are returned in fsdp_chat_text.spans. */
typedef enum fsdp_chat_spans {
    FSDP_CHAT_SPANS_NONE,
    FSDP_CHAT_SPANS_ASSISTANT, /**< each turn of the assistant */
    /** What comes after the prompt. If a conversation has "messages", the prompt is all messages
     * except the last one. The last one must be the assistant's. */
    FSDP_CHAT_SPANS_COMPLETION,
} fsdp_chat_spans;

/** Options of fsdp_chat_render(). If all fields are zero, only the text of the conversation is
 * returned. */
typedef struct fsdp_chat_options {
    bool add_generation_prompt; /**< end with the beginning of a turn of the assistant */
    fsdp_chat_spans spans;      /**< which parts are returned in fsdp_chat_text.spans */
    const char *kwargs;         /**< chat_template_kwargs: a JSON object with more variables for the
                                     template, e.g. {"enable_thinking": false}; NULL: none */
} fsdp_chat_options;

/**
 * Open a chat template.
 *
 * The folder's templates are read from the first of these places that exists: chat_template.jinja
 * (with additional_chat_templates/NAME.jinja); the key chat_template of tokenizer_config.json,
 * which has one text or a list of texts with names; chat_template.json. If there are several
 * templates, "tool_use" is used for conversations with tools, and "default" for all others.
 *
 * The special tokens of tokenizer_config.json or special_tokens_map.json (bos_token, eos_token,
 * ...) are variables of the template.
 *
 * @param folder a Hugging Face model folder; NULL: none
 * @param name   a name of a template in the folder, the path of a file, or a known family: one of
 *               fsdp_chat_template_families(); NULL: the folder's own template
 * @param out    new template, closed with fsdp_chat_template_close()
 * @return FSDP_ERR_NOT_FOUND if there is no template; FSDP_ERR_FORMAT if it is not valid Jinja;
 *         FSDP_ERR_UNSUPPORTED if it uses a part of Jinja that this library does not have. The
 *         message contains the file, and the line in the template.
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_chat_template_open(const char *folder, const char *name,
                                                             fsdp_chat_template **out);
/** Accepts NULL. */
FSDP_API void fsdp_chat_template_close(fsdp_chat_template *chat);
/** Return the names of the model families whose templates are built into this library: "chatml",
 * "gemma", ...; the list ends with NULL. */
FSDP_API const char *const *fsdp_chat_template_families(void);
/** Return where the template comes from, for messages: a path, or the name of a family; borrowed.
 */
FSDP_API const char *fsdp_chat_template_source(const fsdp_chat_template *chat);

/**
 * Write a conversation as text.
 *
 * @param conversation [bytes] a JSON object with the key "messages": a list of objects with "role"
 *                     and "content", a text or a list of {"type": "text", "text": ...}, and other
 *                     keys that the template knows, such as "tool_calls". Instead of "messages",
 *                     there may be "prompt" and "completion", each a list of messages. The keys
 *                     "tools", "documents" and "chat_template_kwargs" are used, too. Other keys are
 *                     ignored.
 * @param options      NULL: all zero
 * @param out          out: freed with fsdp_chat_text_fini(); its old contents are not freed
 * @return FSDP_ERR_FORMAT if `conversation` is not such an object; FSDP_ERR_INVALID if the template
 *         refuses the conversation (raise_exception), fails while it is rendered, or takes too
 *         long; FSDP_ERR_UNSUPPORTED if the assistant's texts cannot be found, or if the template
 *         uses a part of Jinja that this library does not have
 */
FSDP_API FSDP_MUST_CHECK fsdp_status fsdp_chat_render(const fsdp_chat_template *chat,
                                                      const char *conversation, size_t bytes,
                                                      const fsdp_chat_options *options,
                                                      fsdp_chat_text *out);

#ifdef __cplusplus
}
#endif
