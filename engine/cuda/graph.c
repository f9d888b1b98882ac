/* Capture and replay of the decode step.  Everything a step reads that changes from step to step lies in device memory. */
#include "contract/err.h"
#include "device.h"

bool cuda_graph_replay(struct device *dev, int rows)
{
	if (!dev->graph[rows])
		return false;
	TRY(dev, cudaGraphLaunch(dev->graph[rows], dev->stream));
	dev->counters->n[COUNT_GRAPH_REPLAYS]++;
	return true;
}

void cuda_graph_begin(struct device *dev, int rows)
{
	BUG_ON(dev->graph[rows]);
	settle(dev);
	TRY(dev, cudaStreamBeginCapture(dev->stream, cudaStreamCaptureModeThreadLocal));
}

/* The launches of the capture were counted where they were made; this runs them. */
void cuda_graph_end(struct device *dev, int rows)
{
	cudaGraph_t graph;

	settle(dev);
	TRY(dev, cudaStreamEndCapture(dev->stream, &graph));
	TRY(dev, cudaGraphInstantiate(&dev->graph[rows], graph, 0));
	TRY(dev, cudaGraphDestroy(graph));
	TRY(dev, cudaGraphLaunch(dev->graph[rows], dev->stream));
}
