/* The state file of the stand-in libraries: lines `key=value`, read anew at every question, so
   that a test can change the machine while a program watches it. `#` begins a comment.
   GPUSETUP_STANDIN names the file. A value `!15` makes the call return NVML error 15; a key
   that is missing makes it return "not supported" (3); `@hang`, `@crash` and others (state_act) are
   what the call does instead. See README.md beside this file. */
#ifndef STATE_H
#define STATE_H
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef _WIN32 /* no fork and no SIGBUS there, and a sleep of another name */
#include <windows.h>
#define EXPORT __declspec(dllexport)
#define SIGBUS SIGABRT
#define fork() 1
#define sleep(seconds) Sleep(1000 * (seconds))
#define usleep(micro) Sleep((DWORD)(micro) / 1000)
#define strtok_r strtok_s
#else
#define EXPORT __attribute__((visibility("default")))
#endif
enum { TEXT = 512 };

/* The text that stands in the file, whatever it asks for. */
static int state_find(const char *key, char *value) {
    const char *path = getenv("GPUSETUP_STANDIN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[TEXT];
    size_t length = strlen(key);
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) != 0 || line[length] != '=') continue;
        strcpy(value, line + length + 1);
        value[strcspn(value, "\r\n")] = 0;
        found = 1;
    }
    fclose(file);
    return found;
}

/* `@helper`: what a library does that wants its module loaded and its nodes made: it starts the
   program that `helper` names. */
static void state_start_helper(void) {
    char program[TEXT];
    if (state_find("helper", program) && system(program) != 0) return;
}

/* A value that begins with `@` is a deed; what stands behind it is the value. */
static void state_act(char *value) {
    char *rest;
    if (!strncmp(value, "@hang", 5)) for (;;) sleep(1);
    if (!strncmp(value, "@crash", 6)) raise(SIGSEGV);
    if (!strncmp(value, "@bus", 4)) raise(SIGBUS);
    if (!strncmp(value, "@abort", 6)) abort();
    if (!strncmp(value, "@exit", 5)) _exit(3);
    if (!strncmp(value, "@print ", 7)) { /* a line that looks like an answer */
        printf("{\"init\": 9, \"message\": \"printed by a library\"}\n");
        fflush(stdout);
        memmove(value, value + 7, strlen(value + 7) + 1);
    }
    if (!strncmp(value, "@hold ", 6)) { /* a child that keeps our pipes, as a daemon may */
        if (!fork()) for (;;) sleep(1);
        memmove(value, value + 6, strlen(value + 6) + 1);
    }
    if (!strncmp(value, "@helper", 7)) {
        state_start_helper();
        memmove(value, value + 7, strlen(value + 7) + 1);
    }
    if (!strncmp(value, "@slow ", 6)) {
        usleep((useconds_t)strtol(value + 6, &rest, 10) * 1000);
        rest += strspn(rest, " ");
        memmove(value, rest, strlen(rest) + 1);
    }
}

static int state_text(const char *key, char *value) {
    int found = state_find(key, value);
    if (found && value[0] == '@') state_act(value);
    return found;
}

static long long state_number(const char *key, long long otherwise) {
    char value[TEXT];
    return state_text(key, value) ? strtoll(value, NULL, 0) : otherwise;
}

/* `<what>.slow_ms`, `<what>.hang`, `<what>.crash`: how an answer comes late or never. */
__attribute__((unused)) static void state_behave(const char *what) {
    char key[64];
    long long slow;
    snprintf(key, sizeof key, "%s.slow_ms", what);
    slow = state_number(key, 0);
    if (slow) usleep((useconds_t)slow * 1000);
    snprintf(key, sizeof key, "%s.hang", what);
    while (state_number(key, 0)) sleep(1);
    snprintf(key, sizeof key, "%s.crash", what);
    if (state_number(key, 0)) raise(SIGSEGV);
}
#endif
