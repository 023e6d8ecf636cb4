# Tries to start DOCTOR_PIDS processes, and says how many there were at most.
import os, signal, time

children = []
try:
    for _ in range(int(os.environ["DOCTOR_PIDS"])):
        child = os.fork()
        if child == 0:
            time.sleep(6)
            os._exit(0)
        children.append(child)
except OSError:
    pass
most = sum(name.isdigit() for name in os.listdir("/proc"))
for child in children:
    os.kill(child, signal.SIGKILL)
for child in children:
    os.waitpid(child, 0)
print(most)
