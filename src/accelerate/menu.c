/* See menu.h. */
#include "src/accelerate/menu.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <termios.h>
#include <unistd.h>

#include "src/base/alloc.h"

enum {
    KEY_CTRL_C = 3,
    KEY_CTRL_D = 4,
    KEY_ESCAPE = 27,
    KEY_UP = 256,
    KEY_DOWN,
    KEY_END /* end of the input */
};

/* ---- lines ---- */

static fsdp_status input_ended(const char *prompt)
{
    return fsdp_error(FSDP_ERR_STATE, "the input ended at the question: %.200s", prompt);
}

fsdp_status fsdp_menu_line(const fsdp_menu_io *io, const char *prompt, char **line)
{
    char *text = NULL; /* allocated by getline */
    size_t cap = 0;
    fprintf(io->out, "%s", prompt);
    fflush(io->out);
    ssize_t n = getline(&text, &cap, io->in);
    if (n < 0) {
        free(text);
        return input_ended(prompt);
    }
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' '))
        n--;
    *line = fsdp_strndup(text, (size_t)n);
    free(text);
    return *line ? FSDP_OK : FSDP_ERR_NOMEM;
}

size_t fsdp_menu_find(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(text, words[i]) == 0)
            return i;
    char *end;
    const long number = strtol(text, &end, 10);
    if (end == text || *end || number < 1 || (size_t)number > count)
        return count;
    return (size_t)number - 1;
}

static fsdp_status choose_by_line(const fsdp_menu_io *io, const char *prompt,
                                  const char *const *words, size_t count, size_t initial,
                                  size_t *chosen)
{
    fprintf(io->out, "%s\n", prompt);
    for (size_t i = 0; i < count; i++)
        fprintf(io->out, "  %zu) %s\n", i + 1, words[i]);
    for (;;) {
        char *line;
        fprintf(io->out, "Please select a choice by name or number [%s]: ", words[initial]);
        FSDP_TRY(fsdp_menu_line(io, "", &line));
        *chosen = *line ? fsdp_menu_find(line, words, count) : initial;
        fsdp_free(line);
        if (*chosen < count)
            return FSDP_OK;
        fprintf(io->out, "None of the choices.\n");
    }
}

/* ---- keys ---- */

static int read_byte(int fd)
{
    unsigned char byte;
    ssize_t n;
    while ((n = read(fd, &byte, 1)) < 0 && errno == EINTR)
        ;
    return n == 1 ? byte : KEY_END;
}

static int read_key(int fd)
{
    const int first = read_byte(fd);
    if (first != KEY_ESCAPE)
        return first;
    const int second = read_byte(fd);
    if (second != '[' && second != 'O')
        return second;
    const int third = read_byte(fd);
    return third == 'A' ? KEY_UP : third == 'B' ? KEY_DOWN : third == KEY_END ? KEY_END : 0;
}

static void draw(FILE *out, const char *const *words, size_t count, size_t position)
{
    for (size_t i = 0; i < count; i++)
        fprintf(out, "\r\033[K %s  %s\n", i == position ? "\xe2\x9e\x94" : " ", words[i]);
    fflush(out);
}

/* Change *position, the index of the selected word, if `key` moves the selection or is a digit.
 * Return true if `key` is Enter, which ends the choice. */
static bool press(int key, const char *const *words, size_t count, size_t *position)
{
    if ((key == KEY_UP || key == 'k') && *position > 0)
        --*position;
    if ((key == KEY_DOWN || key == 'j') && *position + 1 < count)
        ++*position;
    if (key >= '0' && key <= '9') {
        const char text[2] = {(char)key, 0};
        const size_t found = fsdp_menu_find(text, words, count);
        if (found < count)
            *position = found;
        else if (key == '0') /* In Accelerate's menus, the first word has the number 0, so 0 selects
                                the first word here, too. */
            *position = 0;
    }
    return key == '\r' || key == '\n';
}

/* ---- the terminal while keys are read ---- */

/* Signals that end the program. They must not leave the terminal without echo. */
static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

enum {
    ENDING_SIGNALS = sizeof ending_signals / sizeof *ending_signals
};

/* What the signal handler restores. One variable is enough, because only one menu is shown at a
 * time. */
static struct {
    int fd;
    struct termios before;
    struct sigaction actions[ENDING_SIGNALS];
} terminal;

/* Restore the terminal, and raise the signal again. The signal then ends the program, because
 * SA_RESETHAND has restored its default action. */
static void restore_and_end(int number)
{
    (void)tcsetattr(terminal.fd, TCSANOW, &terminal.before);
    raise(number);
}

/* Set the terminal so that each key is read at once and not echoed. */
static void begin_keys(int fd, const struct termios *before)
{
    struct sigaction action = {.sa_flags = (int)(SA_RESETHAND | SA_NODEFER)};
    struct termios raw = *before;
    terminal.fd = fd;
    terminal.before = *before;
    action.sa_handler = restore_and_end;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < ENDING_SIGNALS; i++) {
        sigaction(ending_signals[i], NULL, &terminal.actions[i]);
        if (terminal.actions[i].sa_handler == SIG_DFL)
            sigaction(ending_signals[i], &action, NULL);
    }
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    tcsetattr(fd, TCSADRAIN, &raw);
}

static void end_keys(void)
{
    tcsetattr(terminal.fd, TCSADRAIN, &terminal.before);
    for (size_t i = 0; i < ENDING_SIGNALS; i++)
        sigaction(ending_signals[i], &terminal.actions[i], NULL);
}

static fsdp_status choose_by_keys(const fsdp_menu_io *io, const char *prompt,
                                  const char *const *words, size_t count, size_t initial,
                                  size_t *chosen)
{
    struct termios before;
    const int fd = fileno(io->in);
    if (tcgetattr(fd, &before) != 0)
        return choose_by_line(io, prompt, words, count, initial, chosen);
    fprintf(io->out,
            "%s\nPlease select a choice using the arrow or number keys, and selecting with enter\n",
            prompt);
    fflush(io->out);
    begin_keys(fd, &before);
    *chosen = initial;
    draw(io->out, words, count, *chosen);
    int key;
    do {
        key = read_key(fd);
        if (key == KEY_END || key == KEY_CTRL_C || key == KEY_CTRL_D)
            break;
        fprintf(io->out, "\033[%zuA", count);
        const bool made = press(key, words, count, chosen);
        draw(io->out, words, count, *chosen);
        if (made)
            break;
    } while (true);
    end_keys();
    if (key == KEY_CTRL_C || key == KEY_CTRL_D)
        return fsdp_error(FSDP_ERR_STATE, "interrupted: nothing was written");
    return key == KEY_END ? input_ended(prompt) : FSDP_OK;
}

fsdp_status fsdp_menu_choose(const fsdp_menu_io *io, const char *prompt, const char *const *words,
                             size_t count, size_t initial, size_t *chosen)
{
    return io->keys ? choose_by_keys(io, prompt, words, count, initial, chosen)
                    : choose_by_line(io, prompt, words, count, initial, chosen);
}
