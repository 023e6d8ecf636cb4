/*
 * Runs a program as its only child and reports how it ended, as protocol 2 asks.
 *
 * JavaScript cannot do this from the inside: exit listeners added by the program run after ours,
 * an unhandled rejection tells them 0 and then exits with 1, and Bun still prints and flushes
 * behind the last of them. From here every ending is simply a wait status, and neither closing
 * descriptors nor redefining `process` in the program can spoil the report.
 *
 * usage: supervise DIRECTORY PROGRAM [ARGUMENT...]
 * The program writes "<token> <CPU microseconds used so far>\n" to descriptor 3 and closes it once
 * it has its request.
 */
#define _GNU_SOURCE /* pipe2 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define REPORT 3

static void fail(const char *what) {
  fprintf(stderr, "supervise: failed to %s: %s\n", what, strerror(errno));
  _exit(126);
}

static void write_all(int descriptor, const char *text, size_t length) {
  /* The flag belongs to the pipe's end, which the program shared and may have set. */
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  while (length > 0) {
    ssize_t written = write(descriptor, text, length);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text += written, length -= written;
  }
}

static long long microseconds(struct timeval time) {
  return time.tv_sec * 1000000LL + time.tv_usec;
}

/* How often the kernel killed a process of this container for want of memory: control groups v2, then v1. */
static long long oom_kills(void) {
  static const char *const counters[] = {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
  for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
    FILE *file = fopen(counters[i], "re");
    if (!file) continue;
    char name[32];
    long long count, kills = 0;
    while (fscanf(file, "%31s %lld", name, &count) == 2)
      if (strcmp(name, "oom_kill") == 0) kills = count;
    fclose(file);
    return kills;
  }
  return 0;
}

int main(int argc, char **argv) {
  int report[2], status;
  struct rusage usage;

  if (argc < 3) return 2;
  if (chdir(argv[1]) != 0) fail("enter the runner's directory");
  if (pipe2(report, O_CLOEXEC) != 0) fail("make a pipe");
  signal(SIGPIPE, SIG_IGN); /* a reader gone early must not look like the program's death */

  pid_t program = fork();
  if (program < 0) fail("fork");
  if (program == 0) {
    signal(SIGPIPE, SIG_DFL);
    /* dup2 onto itself would leave close-on-exec set */
    if (report[1] == REPORT ? fcntl(REPORT, F_SETFD, 0) : dup2(report[1], REPORT) < 0) fail("pass the pipe");
    execvp(argv[2], argv + 2);
    fail("start the program");
  }
  close(report[1]);
  long long oom_kills_before = oom_kills();

  while (wait4(program, &status, 0, &usage) < 0)
    if (errno != EINTR) fail("wait");

  int oom = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_kills() > oom_kills_before;
  if (WIFSIGNALED(status) && !oom) { /* no line: the engine must see the same signal */
    signal(WTERMSIG(status), SIG_DFL);
    kill(getpid(), WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
  }

  int exit_status = oom ? 128 + SIGKILL : WEXITSTATUS(status);

  /* Whatever it left running could still write behind the mark. */
  kill(-1, SIGKILL);

  char token[129], line[256];
  long long loading = 0;
  FILE *told = fdopen(report[0], "r");
  /* Read only now, it cannot block: no writer is left. */
  if (told && fscanf(told, "%128[0-9a-f] %lld", token, &loading) == 2) {
    long long cpu = microseconds(usage.ru_utime) + microseconds(usage.ru_stime) - loading;
    if (cpu < 0) cpu = 0;
    write_all(STDOUT_FILENO, line, snprintf(line, sizeof line, "\x1e%s\n", token));
    /* ru_maxrss (KiB): the largest resident set of the program or of a child it waited for. */
    write_all(STDERR_FILENO, line,
              snprintf(line, sizeof line, "\x1e%s {\"exit\":%d%s,\"cpuMs\":%lld,\"peakBytes\":%lld}\n", token,
                       exit_status, oom ? ",\"oom\":true" : "", cpu / 1000, usage.ru_maxrss * 1024LL));
  }
  _exit(exit_status);
}
