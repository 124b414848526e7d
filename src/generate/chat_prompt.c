/* See chat_prompt.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/str.h"
#include "src/generate/chat_prompt.h"
#include "src/text/chars/utf8.h"
#include "src/text/chat/chat.h"
#include "src/text/special_in_text.h"

/* Used for conversations whose last message is to be continued. Before such a conversation is
 * rendered, this tag is appended to the last message. The position of the tag in the rendered text
 * shows where the message ends. transformers does the same. */
#define TAG "CONTINUE_FINAL_MESSAGE_TAG "

static bool is_message_list(fsdp_json_node row, const char *key)
{
    const fsdp_json_node list = fsdp_json_find(row, key);
    return fsdp_json_kind_of(list) == FSDP_JSON_ARRAY &&
           fsdp_json_kind_of(fsdp_json_at(list, 0)) == FSDP_JSON_OBJECT;
}

static const char *messages_key(fsdp_json_node row)
{
    return fsdp_json_has(row, "messages") ? "messages" : "prompt";
}

bool fsdp_is_conversation(fsdp_json_node row)
{
    return fsdp_json_kind_of(row) == FSDP_JSON_OBJECT && is_message_list(row, messages_key(row));
}

static fsdp_json_node last_message(fsdp_json_node row)
{
    const fsdp_json_node list = fsdp_json_find(row, messages_key(row));
    const size_t n = fsdp_json_len(list);
    return fsdp_json_at(list, n ? n - 1 : 0);
}

void fsdp_conversation_add(fsdp_json_node row, const char *role, const char *text, size_t length)
{
    const fsdp_json_node message = fsdp_json_append_object(fsdp_json_find(row, messages_key(row)));
    fsdp_json_set_str(message, "role", role);
    fsdp_json_set_strn(message, "content", text, length);
}

fsdp_status fsdp_conversation_create(const fsdp_chat_prompts *chat, const char *text, size_t length,
                                     fsdp_json **doc)
{
    if (fsdp_utf8_valid_length(text, length) != length)
        return fsdp_error(FSDP_ERR_INVALID, "the text is not UTF-8");
    fsdp_json *fresh;
    FSDP_TRY(fsdp_json_create("conversation", &fresh));
    const fsdp_json_node root = fsdp_json_root(fresh);
    fsdp_json_set_array(root, "messages");
    if (chat->system)
        fsdp_conversation_add(root, "system", chat->system, strlen(chat->system));
    fsdp_conversation_add(root, "user", text, length);
    const fsdp_status status = fsdp_json_check_built(fresh);
    if (status == FSDP_OK)
        *doc = fresh;
    else
        fsdp_json_destroy(fresh);
    return status;
}

/* --- the text of a conversation --- */

/* Append `text` to the content of a message. If the content is a list of parts, append it to the
 * last part that has a text. */
static fsdp_status append_to_message(fsdp_json_node message, const char *text)
{
    fsdp_json_node holder = message;
    const char *key = "content", *old;
    const fsdp_json_node content = fsdp_json_find(message, "content");
    if (fsdp_json_kind_of(content) == FSDP_JSON_ARRAY) {
        key = "text";
        holder = (fsdp_json_node){0};
        for (size_t i = fsdp_json_len(content); i > 0 && !holder.value; i--)
            if (fsdp_json_has(fsdp_json_at(content, i - 1), key))
                holder = fsdp_json_at(content, i - 1);
    }
    if (!holder.value || !fsdp_json_has(holder, key))
        return fsdp_json_mismatch(message, "content",
                                  "a text: continue_final_message goes on with it");
    FSDP_TRY(fsdp_json_get_str(holder, key, &old));
    char *whole = fsdp_strdup_printf("%s%s", old, text);
    if (!whole)
        return FSDP_ERR_NOMEM;
    fsdp_json_set_str(holder, key, whole);
    fsdp_free(whole);
    return FSDP_OK;
}

/* Return the last occurrence of `what` in `text`, or NULL if there is none. */
static char *find_last(char *text, const char *what)
{
    char *found = NULL;
    for (char *at = text; (at = strstr(at, what)); at++)
        found = at;
    return found;
}

/* Cut the rendered text at TAG, where the message that is to be continued ends. TAG ends with a
 * space. If this space is missing in the rendered text, the template removes white space from the
 * ends of messages. In this case, also remove the white space before TAG. */
static fsdp_status cut_at_tag(fsdp_chat_text *text)
{
    char name[sizeof TAG] = TAG;
    name[sizeof TAG - 2] = 0;
    char *at = text->text ? find_last(text->text, name) : NULL;
    if (!at)
        return fsdp_error(FSDP_ERR_INVALID, "continue_final_message: the chat template does not "
                                            "write the whole text of the last message");
    const bool kept = at[strlen(name)] == ' ';
    while (!kept && at > text->text && strchr(" \t\r\n\v\f", at[-1]))
        at--;
    *at = 0;
    text->bytes = (size_t)(at - text->text);
    return FSDP_OK;
}

/* Set *copy to a copy of the conversation. In the copy, the list of messages has the key
 * "messages", even if it has the key "prompt" in `row`. The copy shares values with the document of
 * `row`, so the caller must free the copy before that document. */
static fsdp_status copy_row(fsdp_json_node row, fsdp_json **copy)
{
    FSDP_TRY(fsdp_json_create(fsdp_json_name(row.doc), copy));
    const fsdp_json_node root = fsdp_json_root(*copy);
    for (fsdp_json_node v = fsdp_json_first(row); v.value; v = fsdp_json_next(v))
        if (strcmp(v.key, messages_key(row)) == 0)
            fsdp_json_set_shared(root, "messages", v);
        else if (strcmp(v.key, "completion") != 0 && strcmp(v.key, "prompt") != 0)
            fsdp_json_set_shared(root, v.key, v);
    return FSDP_OK;
}

static fsdp_status check_last(const fsdp_chat_prompts *chat, fsdp_json_node row)
{
    const char *role = "";
    FSDP_TRY(fsdp_json_opt_str(last_message(row), "role", "", &role));
    if (!chat->continue_final_message && strcmp(role, "assistant") == 0)
        return fsdp_json_mismatch(last_message(row), "role",
                                  "another role than assistant in the last message; "
                                  "--continue-final-message goes on with that message");
    return FSDP_OK;
}

static fsdp_status render(const fsdp_chat_prompts *chat, fsdp_json_node row, fsdp_chat_text *text)
{
    const fsdp_chat_options options = {.add_generation_prompt = !chat->continue_final_message,
                                       .kwargs = chat->kwargs};
    FSDP_TRY(fsdp_chat_render_node(chat->chat_template, row, &options, text));
    if (!chat->continue_final_message)
        return FSDP_OK;
    const fsdp_status status = cut_at_tag(text);
    if (status != FSDP_OK)
        fsdp_chat_text_fini(text);
    return status;
}

/* Render a row. If its last message is to be continued, render a copy of the row in which TAG is
 * appended to this message; render() then cuts the text at TAG. */
static fsdp_status render_row(const fsdp_chat_prompts *chat, fsdp_json_node row,
                              fsdp_chat_text *text)
{
    fsdp_json *plain = NULL, *tagged = NULL;
    char *printed = NULL;
    size_t bytes = 0;
    fsdp_status status = copy_row(row, &plain);
    if (status == FSDP_OK && chat->continue_final_message) {
        /* `plain` shares values with `row`, so TAG is appended in `tagged`, a document of its
         * own. */
        status = fsdp_json_print(plain, FSDP_JSON_COMPACT, &printed, &bytes);
        if (status == FSDP_OK)
            status = fsdp_json_parse(fsdp_json_name(row.doc), 1, printed, bytes, &tagged);
        if (status == FSDP_OK)
            status = append_to_message(last_message(fsdp_json_root(tagged)), TAG);
    }
    if (status == FSDP_OK)
        status = render(chat, fsdp_json_root(tagged ? tagged : plain), text);
    fsdp_free(printed);
    fsdp_json_destroy(tagged);
    fsdp_json_destroy(plain);
    return status;
}

static fsdp_status encode(const fsdp_tokenizer *tokenizer, const char *text, size_t bytes,
                          fsdp_token_list *ids)
{
    /* The special tokens of the template are not counted. */
    const fsdp_special_in_text counted = *fsdp_special_in_text_of_thread();
    const fsdp_status status = fsdp_tokenizer_encode_text(tokenizer, text, bytes, 0, ids);
    *fsdp_special_in_text_of_thread() = counted;
    return status;
}

fsdp_status fsdp_chat_prompt_encode(const fsdp_chat_prompts *chat, const fsdp_tokenizer *tokenizer,
                                    fsdp_json_node row, fsdp_token_list *ids)
{
    fsdp_chat_text text = {0};
    if (!chat->chat_template)
        return fsdp_error(FSDP_ERR_INVALID,
                          "a conversation needs a chat template; --chat-template takes one%s%s%s",
                          chat->why_none ? " (" : "", chat->why_none ? chat->why_none : "",
                          chat->why_none ? ")" : "");
    FSDP_TRY(check_last(chat, row));
    FSDP_TRY(render_row(chat, row, &text));
    const fsdp_status status = encode(tokenizer, text.text, text.bytes, ids);
    fsdp_chat_text_fini(&text);
    return status;
}

/* --- answers --- */

fsdp_status fsdp_conversation_answer(const fsdp_chat_prompts *chat, fsdp_json_node row,
                                     const char *text)
{
    if (chat->continue_final_message)
        return append_to_message(last_message(row), text);
    if (strcmp(messages_key(row), "messages") == 0) {
        fsdp_conversation_add(row, "assistant", text, strlen(text));
    } else {
        const fsdp_json_node message =
            fsdp_json_append_object(fsdp_json_set_array(row, "completion"));
        fsdp_json_set_str(message, "role", "assistant");
        fsdp_json_set_str(message, "content", text);
    }
    return fsdp_json_check_built(row.doc);
}

/* --- the end of a turn --- */

/* Render a conversation of two messages: a user message, and TAG as the assistant's answer. In the
 * rendered text, the end-of-turn token follows TAG. */
static fsdp_status render_turn(const fsdp_chat_prompts *chat, fsdp_chat_text *text)
{
    static const fsdp_chat_prompts no_system = {0};
    const fsdp_chat_options options = {.kwargs = chat->kwargs};
    fsdp_json *doc;
    FSDP_TRY(fsdp_conversation_create(&no_system, "a", 1, &doc));
    fsdp_conversation_add(fsdp_json_root(doc), "assistant", TAG, sizeof TAG - 2);
    fsdp_status status = fsdp_json_check_built(doc);
    if (status == FSDP_OK)
        status = fsdp_chat_render_node(chat->chat_template, fsdp_json_root(doc), &options, text);
    fsdp_json_destroy(doc);
    return status;
}

/* Set *id to the special token that follows the answer in the rendered text, or to -1 if there is
 * none. */
static fsdp_status find_end(const fsdp_tokenizer *tokenizer, const fsdp_chat_text *text,
                            int32_t *id)
{
    char name[sizeof TAG] = TAG;
    fsdp_token_list ids = {0};
    name[sizeof TAG - 2] = 0;
    const char *at = find_last(text->text, name);
    *id = -1;
    if (!at)
        return FSDP_OK;
    at += strlen(name);
    at += strspn(at, " \t\r\n");
    const fsdp_status status = encode(tokenizer, at, strlen(at), &ids);
    if (status == FSDP_OK && ids.len && fsdp_tokenizer_is_special(tokenizer, ids.ids[0]))
        *id = ids.ids[0];
    fsdp_token_list_fini(&ids);
    return status;
}

fsdp_status fsdp_chat_add_end_of_turn(const fsdp_chat_prompts *chat,
                                      const fsdp_tokenizer *tokenizer,
                                      fsdp_generation_config *config)
{
    fsdp_chat_text text = {0};
    int32_t id;
    if (!chat->chat_template)
        return FSDP_OK;
    fsdp_status status = render_turn(chat, &text);
    /* If the template refuses the test conversation of render_turn(), this is not an error, because
     * the template may accept the user's conversations. Only a lack of memory is an error. */
    if (status != FSDP_OK)
        return status == FSDP_ERR_NOMEM ? status : FSDP_OK;
    status = find_end(tokenizer, &text, &id);
    fsdp_chat_text_fini(&text);
    FSDP_TRY(status);
    for (int i = 0; i < config->n_eos; i++)
        if (config->eos_token_ids[i] == id)
            return FSDP_OK;
    if (id >= 0 && config->n_eos < FSDP_MAX_EOS)
        config->eos_token_ids[config->n_eos++] = id;
    return FSDP_OK;
}
