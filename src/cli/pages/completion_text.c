/* Makes texts for completion scripts. */
#include <string.h>

#include "src/cli/pages/completion.h"

void fsdp_first_sentence(fsdp_str *out, const char *help)
{
    size_t length = strcspn(help, ";\n");
    for (size_t i = 0; i + 1 < length; i++)
        if (help[i] == '.' && help[i + 1] == ' ')
            length = i;
    fsdp_str_append(out, help, length);
}
