/* See chat_options.h. */
#include "src/data/chat_options.h"

#include "src/base/assert.h"
#include "src/data/rows/rows_form.h"

void fsdp_chat_row_options_derive(fsdp_chat_row_options *chat, const fsdp_options *options)
{
    static const char name[] = "completion-only-loss";
    chat->asked_for.assistant_only_loss = fsdp_options_asked_for(options, "assistant-only-loss");
    chat->given_completion = fsdp_options_given(options, name);
    chat->asked_for.completion_only_loss = fsdp_options_asked_for(options, name) ||
                                           fsdp_options_origin(options, name) == FSDP_ORIGIN_FLAG;
}

void fsdp_chat_row_options_apply(const fsdp_chat_row_options *chat, fsdp_chat_rows *rows)
{
    rows->kwargs = chat->kwargs;
    rows->assistant_only_loss = chat->assistant_only_loss;
    rows->completion_loss = !chat->given_completion      ? FSDP_COMPLETION_LOSS_DEFAULT
                            : chat->completion_only_loss ? FSDP_COMPLETION_LOSS_ONLY
                                                         : FSDP_COMPLETION_LOSS_ALL;
}

fsdp_status fsdp_chat_row_options_check_uses(const fsdp_chat_row_options *chat, unsigned uses,
                                             const char *path)
{
    const struct {
        bool asked_for;
        unsigned use;
        const char *flag, *rows;
    } options[] = {{chat->chat_template, FSDP_USES_CHAT, "chat-template", "conversations"},
                   {chat->kwargs, FSDP_USES_CHAT, "chat-template-kwargs", "conversations"},
                   {chat->asked_for.assistant_only_loss && chat->assistant_only_loss,
                    FSDP_USES_CHAT, "assistant-only-loss", "conversations"},
                   {chat->asked_for.completion_only_loss, FSDP_USES_CHAT | FSDP_USES_COMPLETION,
                    "completion-only-loss", "conversations, or have a prompt and a completion"}};
    for (size_t i = 0; i < FSDP_LENGTH(options); i++)
        if (options[i].asked_for && !(uses & options[i].use))
            return fsdp_error(
                FSDP_ERR_INVALID,
                "--%s is for rows that are %s; those of %s are not (a conversation has "
                "a list \"messages\")",
                options[i].flag, options[i].rows, path);
    return FSDP_OK;
}
