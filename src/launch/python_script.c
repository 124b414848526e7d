/* Refuses to start Python scripts, with a message that says which command to use instead. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/assert.h"
#include "src/launch/launch.h"

/* Scripts of tutorials and of Hugging Face's examples. `command` is the fsdp command that does the
 * same as the script. `example` is this project's example in C that does the same; it may be
 * NULL. */
static const struct {
    const char *script, *command, *example;
} known[] = {
    {"T5_training.py", "train --model t5-base --data FILE.csv --output DIR", "t5_wikihow"},
    {"train_t5.py", "train --model t5-base --data FILE.csv --output DIR", NULL},
    {"fsdp_tutorial.py", "train --model t5-base --data FILE.csv --output DIR", NULL},
    {"run_summarization.py", "train --model t5-small --data FILE --output DIR", NULL},
    {"run_translation.py",
     "train --model t5-small --data FILE --source-lang en --target-lang de --output DIR", NULL},
    {"run_clm.py", "train --task causal-lm --model gpt2 --data FILE --output DIR", NULL},
    {"train_gpt2.py", "train --task causal-lm --model gpt2 --data FILE --output DIR", NULL},
    {"pretrain.py", "train --task causal-lm --from-config --model DIR --data FILE --output DIR",
     NULL},
    {"sft.py", "train --task causal-lm --model DIR --data FILE --output DIR", NULL},
    {"run_mlm.py", "train --task masked-lm --model bert-base-uncased --data FILE --output DIR",
     NULL},
    {"run_glue.py", "train --task classification --model bert-base-cased --data FILE --output DIR",
     NULL},
    {"nlp_example.py",
     "train --task classification --model bert-base-cased --data FILE --output DIR", "nlp_example"},
    {"run_classification.py",
     "train --task classification --model bert-base-cased --data FILE --output DIR", NULL},
    {"generate.py", "generate --model DIR --input FILE", NULL},
    {"evaluate.py", "evaluate --model DIR --data FILE", NULL},
    {"eval.py", "evaluate --model DIR --data FILE", NULL},
};

/* Return true if two names of scripts are equal. Ignore case, and treat a dash as an underscore. */
static bool same_script(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        const int x = *a == '-' ? '_' : tolower((unsigned char)*a);
        const int y = *b == '-' ? '_' : tolower((unsigned char)*b);
        if (x != y)
            return false;
    }
    return *a == *b;
}

/* Return true if the file is a program that the system can start: it is executable, and either its
 * first line names an interpreter, or it is in the format ELF. */
static bool is_program(const char *path)
{
    char head[4] = "";
    FILE *file = access(path, X_OK) == 0 ? fopen(path, "rb") : NULL;
    const size_t n = file ? fread(head, 1, sizeof head, file) : 0;
    if (file)
        fclose(file);
    return (n >= 2 && head[0] == '#' && head[1] == '!') ||
           (n == 4 && memcmp(head, "\177ELF", 4) == 0);
}

fsdp_status fsdp_launch_check_script(const char *path, bool no_python)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t length = strlen(name);
    const char *command = "train --model DIR --data FILE --output DIR", *example = NULL;
    if (length < 4 || strcmp(name + length - 3, ".py") != 0 || is_program(path))
        return FSDP_OK;
    for (size_t i = 0; i < FSDP_LENGTH(known); i++)
        if (same_script(name, known[i].script)) {
            command = known[i].command;
            example = known[i].example;
        }
    return fsdp_error(FSDP_ERR_INVALID,
                      "%s is a Python script%s. Here ranks are programs: 'fsdp launch -n N %s' "
                      "does it without Python, or name a C program such as examples/%s%s. To run "
                      "the script with Python anyway: fsdp launch -n N python3 %s",
                      path, no_python ? " that no interpreter is named in" : "", command,
                      example ? example : "train_t5", example ? ", which is this script in C" : "",
                      path);
}
